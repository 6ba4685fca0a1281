package observe_test

import (
	"testing"

	"qr-gateway/backends/vllm"
	"qr-gateway/backends/vllm/sidecar"
	"qr-gateway/gateway/observe"
)

type counted vllm.Counts

func (c counted) Counts() vllm.Counts { return vllm.Counts(c) }

type told sidecar.Stats

func (s told) Stats() sidecar.Stats { return sidecar.Stats(s) }

func TestVLLM(t *testing.T) {
	has(t, observe.NewMetrics(observe.Sources{
		VLLM:    map[string]observe.VLLM{"m": counted{Native: 3, Mismatched: 2, Probes: 1}},
		Sidecar: told{Sessions: 1, Live: 2, Kept: 3, Steps: 4, Rows: 5, Tokens: 6, Whole: 7, Voids: 8, Refusals: 9, Rejected: 10, Late: 11, Failed: 12, Mismatched: 13},
	}),
		`qr_gateway_vllm_native_tokens_total{gen_ai_request_model="m"} 3`,
		`qr_gateway_vllm_mismatched_tokens_total{gen_ai_request_model="m"} 2`,
		`qr_gateway_vllm_probes_total{gen_ai_request_model="m"} 1`,
		`qr_gateway_sidecar_sessions 1`, `qr_gateway_sidecar_requests 2`, `qr_gateway_sidecar_kept_requests 3`, `qr_gateway_sidecar_steps_total 4`,
		`qr_gateway_sidecar_rows_total 5`, `qr_gateway_sidecar_tokens_total 6`, `qr_gateway_sidecar_whole_rows_total 7`, `qr_gateway_sidecar_voids_total 8`,
		`qr_gateway_sidecar_refusals_total 9`, `qr_gateway_sidecar_rejected_requests_total 10`, `qr_gateway_sidecar_late_rows_total 11`,
		`qr_gateway_sidecar_failed_rows_total 12`, `qr_gateway_sidecar_mismatched_tokens_total 13`,
	)
}
