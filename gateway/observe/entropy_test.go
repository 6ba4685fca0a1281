package observe_test

import (
	"strings"
	"testing"

	"qr-gateway/backends"
	"qr-gateway/entropy/guard"
	"qr-gateway/gateway"
	"qr-gateway/gateway/observe"
)

type entropySources []gateway.SourceState

func (e *entropySources) States() []gateway.SourceState { return *e }

func TestEntropySources(t *testing.T) {
	s := &entropySources{{
		Type: "grpc", Degraded: true, Breaker: "open", State: guard.State{
			Source: "qrng", Mode: guard.ModeAlarmed, Draws: 7, Bytes: 700, Numbers: 2, DiscardedBytes: 1024,
			Fallbacks: map[string]uint64{"timeout": 3}, Alarms: map[string]uint64{"repetition": 1}, Errors: map[string]uint64{"timeout": 4},
			Flags: map[string]uint64{"drift": 5}, Latency: guard.Histogram{UpperSeconds: []float64{0.001, 0.002}, Counts: []uint64{4, 2, 1}, SumSeconds: 0.5},
		},
	}, {Type: "system", State: guard.State{Source: "system", Mode: guard.ModeOK}}}
	m := observe.NewMetrics(observe.Sources{Entropy: s})
	has(t, m,
		`qr_gateway_entropy_draws_total{entropy_source="qrng"} 7`,
		`qr_gateway_entropy_bytes_total{entropy_source="qrng"} 700`,
		`qr_gateway_entropy_numbers_total{entropy_source="qrng"} 2`,
		`qr_gateway_entropy_discarded_bytes_total{entropy_source="qrng"} 1024`,
		`qr_gateway_entropy_fallbacks_total{entropy_source="qrng",reason="timeout"} 3`,
		`qr_gateway_entropy_alarms_total{entropy_source="qrng",reason="repetition"} 1`,
		`qr_gateway_entropy_errors_total{entropy_source="qrng",kind="timeout"} 4`,
		`qr_gateway_entropy_flags_total{entropy_source="qrng",flag="drift"} 5`,
		`qr_gateway_entropy_latency_seconds_bucket{entropy_source="qrng",le="0.001"} 4`,
		`qr_gateway_entropy_latency_seconds_bucket{entropy_source="qrng",le="0.002"} 6`,
		`qr_gateway_entropy_latency_seconds_bucket{entropy_source="qrng",le="+Inf"} 7`,
		`qr_gateway_entropy_latency_seconds_sum{entropy_source="qrng"} 0.5`,
		`qr_gateway_entropy_state{entropy_source="qrng",state="alarmed"} 1`,
		`qr_gateway_entropy_state{entropy_source="system",state="ok"} 1`,
		`qr_gateway_entropy_degraded{entropy_source="qrng"} 1`,
		`qr_gateway_entropy_degraded{entropy_source="system"} 0`,
		`qr_gateway_entropy_breaker{entropy_source="qrng",state="open"} 1`,
	)
	if _, text := scrape(t, m); strings.Contains(text, `breaker{entropy_source="system"`) {
		t.Error("a source without a breaker has the state of one")
	}
	m.Observe(gateway.Outcome{Model: "m", Result: &backends.Result{Stats: backends.DecodeStats{EntropySource: "qrng", Tokens: 9, FallbackTokens: 4}}})
	has(t, m, `qr_gateway_entropy_tokens_total{entropy_source="qrng",gen_ai_request_model="m"} 9`,
		`qr_gateway_entropy_fallback_tokens_total{entropy_source="qrng",gen_ai_request_model="m"} 4`)
	*s = nil
	if _, text := scrape(t, m); strings.Contains(text, `draws_total{entropy_source="qrng"`) {
		t.Error("a source that is gone is still shown")
	}
}
