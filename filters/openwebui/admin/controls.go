package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
)

// controlPath is where a card holds the slider.
const controlPath = "params.model_controls.qr_lookahead"

// choice is a stop of the slider: what the page calls it, and the parameters of the request that it sets.
type choice struct {
	key, label string
	params     map[string]any
}

func lookaheadChoices() []choice {
	ahead := func(alpha float64) map[string]any {
		return map[string]any{"qr_decoder": "lookahead", "qr_alpha": alpha}
	}
	return []choice{
		{"off", "Off", map[string]any{"qr_decoder": "plain"}},
		{"gentle", "Gentle", ahead(0.15)},
		{"balanced", "Balanced", ahead(0.3)},
		{"strong", "Strong", ahead(0.6)},
	}
}

// lookaheadControl is the slider for looking ahead. It has no default: as long as nobody touches it nothing is sent, and the filter's valves
// and the gateway decide.
func lookaheadControl() json.RawMessage {
	return encoded(map[string]any{
		"display": "slider", "label": "Look-ahead", "description": "How much a token is chosen by what could follow it.",
		"options": inOrder(lookaheadChoices()),
	})
}

// inOrder writes choices as an object whose members stand in the order of the slider's stops, which a map would lose.
func inOrder(choices []choice) json.RawMessage {
	members := make([]string, len(choices))
	for i, c := range choices {
		members[i] = string(encoded(c.key)) + ":" + string(encoded(map[string]any{"label": c.label, "params": c.params}))
	}
	return json.RawMessage("{" + strings.Join(members, ",") + "}")
}

// hasControls finds out whether this Open WebUI knows controls. One that doesn't would send the whole definition to the gateway with every
// chat. So it is offered a control without options, for a model that is not there: where controls are known that is refused as malformed,
// elsewhere the model is missed. Nothing is written either way.
func (c *Client) hasControls(ctx context.Context) (bool, error) {
	const nobody = "qr_gateway_asks_whether_controls_are_known"
	err := c.post(ctx, modelPath+"/update", map[string]any{
		"id": nobody, "name": nobody, "meta": struct{}{},
		"params": map[string]any{"model_controls": map[string]any{"asked": map[string]any{"label": "asked", "options": struct{}{}}}},
	}, nil)
	switch code := status(err); {
	case code == http.StatusUnprocessableEntity:
		return true, nil
	case code >= 400 && code < 500:
		return false, nil
	}
	return false, err
}
