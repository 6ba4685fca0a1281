package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/Shopify/toxiproxy/v2/toxics"
)

// toxic is one of Toxiproxy's, on one way of all connections, those that there are and those to come.
type toxic struct {
	kind, way  string
	attributes map[string]int64
}

func (t toxic) name() string { return t.kind + " " + t.way }

// toxicsOf are what does a fault, if toxics do. A timeout of 0 loses everything, and breaks its connections when it is taken away.
func toxicsOf(kind Kind) []toxic {
	slow := map[string]int64{"latency": 100, "jitter": 80} // ms
	switch kind {
	case HoleUp:
		return []toxic{{"timeout", up, nil}}
	case HoleIn:
		return []toxic{{"timeout", down, nil}}
	case Reset:
		return []toxic{{"reset_peer", down, nil}}
	case Slow:
		return []toxic{{"latency", up, slow}, {"latency", down, slow}}
	default:
		return nil
	}
}

func (p *Proxy) addAll(all []toxic) error {
	for _, t := range all {
		if _, err := p.add(t); err != nil {
			return err
		}
	}
	return nil
}

func (p *Proxy) add(t toxic) (toxics.Toxic, error) {
	spec, err := json.Marshal(map[string]any{"type": t.kind, "stream": t.way, "name": t.name(), "attributes": t.attributes})
	if err != nil {
		return nil, fmt.Errorf("write toxic %s: %w", t.name(), err)
	}
	w, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(string(spec)))
	if err != nil {
		return nil, fmt.Errorf("add toxic %s: %w", t.name(), err)
	}
	return w.Toxic, nil
}

func (p *Proxy) remove(all []toxic) error {
	var failed error
	for _, t := range all {
		failed = errors.Join(failed, p.proxy.Toxics.RemoveToxic(context.Background(), t.name()))
	}
	return failed
}
