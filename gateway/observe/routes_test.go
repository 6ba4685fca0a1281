package observe_test

import (
	"strings"
	"testing"

	"qr-gateway/gateway/observe"
	"qr-gateway/gateway/route"
)

type routes []route.Stats

func (r *routes) Stats() []route.Stats { return *r }

func TestRoutes(t *testing.T) {
	r := &routes{
		{Name: "near", InFlight: 2, Ready: true, Breaker: "closed", Picks: map[string]uint64{"sticky": 5, "load": 1}},
		{Name: "far", Breaker: "open", Failures: 7, Failovers: 3},
	}
	m := observe.NewMetrics(observe.Sources{Routes: map[string]observe.Route{"m": r}})
	has(t, m,
		`qr_gateway_route_picks_total{gen_ai_request_model="m",reason="sticky",replica="near"} 5`,
		`qr_gateway_route_picks_total{gen_ai_request_model="m",reason="load",replica="near"} 1`,
		`qr_gateway_route_in_flight{gen_ai_request_model="m",replica="near"} 2`,
		`qr_gateway_route_ready{gen_ai_request_model="m",replica="near"} 1`,
		`qr_gateway_route_ready{gen_ai_request_model="m",replica="far"} 0`,
		`qr_gateway_route_failures_total{gen_ai_request_model="m",replica="far"} 7`,
		`qr_gateway_route_failovers_total{gen_ai_request_model="m",replica="far"} 3`,
		`qr_gateway_route_breaker{gen_ai_request_model="m",replica="far",state="open"} 1`,
		`qr_gateway_route_breaker{gen_ai_request_model="m",replica="far",state="half-open"} 0`,
		`qr_gateway_route_breaker{gen_ai_request_model="m",replica="near",state="closed"} 1`,
	)
	*r = nil
	if _, text := scrape(t, m); strings.Contains(text, "qr_gateway_route_in_flight{") {
		t.Error("a replica that is gone is still shown")
	}
}
