package admin

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Cards say how the cards of models are written.
type Cards struct {
	Public   bool // let every user use the models
	Controls bool // give the chat page a slider for looking ahead, where Open WebUI has such
	Force    bool // replace what somebody wrote by hand
}

// mark is our note on a card: what we wrote there. A value that is no longer what we wrote was changed by hand, and stays.
type mark struct {
	Created bool              `json:"created,omitempty"` // the card is ours altogether
	Public  bool              `json:"public,omitempty"`  // the grant to everyone is ours
	Written map[string]string `json:"written"`           // digests of values, by path
}

// markPath is where the note stands.
const markPath = "meta.qr_gateway"

func (m *model) mark() (mark, bool) {
	var k mark
	raw := m.at(markPath)
	ok := raw != nil && json.Unmarshal(raw, &k) == nil
	if k.Written == nil {
		k.Written = map[string]string{}
	}
	return k, ok
}

// cards writes the card of every model of our gateways.
func (r *run) cards(ctx context.Context, how Cards) error {
	r.whole = len(r.report)
	ours, all, err := r.gatewayModels(ctx)
	if err != nil {
		return err
	}
	if len(ours) == 0 {
		return r.noModels(all)
	}
	controls := false
	if how.Controls {
		if controls, err = r.hasControls(ctx); err != nil {
			return err
		}
		if !controls {
			r.step("slider").Note = "not in this version of Open WebUI"
		}
	}
	for i := range ours {
		if err := r.card(ctx, &ours[i], how, controls); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) noModels(all int) error {
	e := &Error{
		Message: "Open WebUI at " + r.base.String() + " lists no model of a qr-gateway",
		Hint:    "start the gateway and add it first: Admin Panel > Settings > Connections, an OpenAI connection to http://HOST:PORT/v1 with any key",
	}
	if all > 0 {
		e.Hint += "; a connection that lists its model ids by hand hides what the gateway says of them"
	}
	return e
}

// wanted is what a card is to say, by path: what the gateway says of the model.
func wanted(l *listed, controls bool) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if l.OpenAI.Name != "" && l.OpenAI.Name != l.ID {
		out["name"] = encoded(l.OpenAI.Name)
	}
	for key, value := range l.OpenAI.Info.Meta {
		switch {
		case present(value) == nil:
		case key == "capabilities":
			for name, can := range object(value) {
				out["meta.capabilities."+name] = can
			}
		case key == "description" || key == "suggestion_prompts" || key == "tags":
			out["meta."+key] = value
		}
	}
	if controls {
		out[controlPath] = lookaheadControl()
	}
	return out
}

// card brings one card about.
func (r *run) card(ctx context.Context, l *listed, how Cards, controls bool) error {
	s := r.step("model " + l.ID)
	have, found, err := r.model(ctx, l.ID)
	if err != nil {
		return err
	}
	if !found {
		have = model{ID: l.ID, Name: l.ID, Active: true, Meta: map[string]json.RawMessage{}, Params: map[string]json.RawMessage{}}
	}
	m := have.clone()
	k, _ := m.mark()
	k.Created = k.Created || !found
	want := wanted(l, controls)
	changed, kept := m.lay(want, &k, how.Force)
	s.Kept = names(kept, true)
	public := how.Public && !slices.Contains(have.Grants, everyone())
	k.Public = k.Public || public
	m.put(markPath, encoded(k))
	if err := r.writeCard(ctx, s, &m, &have, found, changed); err != nil || !public {
		return err
	}
	return r.do(s, "opened to all users", func() error { return r.setGrants(ctx, &m, append(slices.Clone(have.Grants), everyone())) })
}

func (r *run) writeCard(ctx context.Context, s *Step, m, have *model, found bool, changed []string) error {
	if !found {
		return r.do(s, "card created", func() error { return r.createModel(ctx, m) })
	}
	if len(changed) == 0 && same(have.at(markPath), m.at(markPath)) {
		return nil
	}
	said := "card updated"
	if len(changed) > 0 {
		said += " (" + strings.Join(names(changed, false), ", ") + ")"
	}
	return r.do(s, said, func() error { return r.updateModel(ctx, m) })
}

// names are what people call the fields at the paths; capabilities are one by one, or all of them together.
func names(paths []string, each bool) []string {
	out := make([]string, len(paths))
	for i, path := range paths {
		name := strings.ReplaceAll(strings.TrimPrefix(path, "meta."), "_", " ")
		if all, one, ok := strings.Cut(name, "."); ok && each {
			name = "capability " + one
		} else if ok {
			name = all
		}
		if path == controlPath {
			name = "slider"
		}
		out[i] = name
	}
	return slices.Compact(out)
}

// lay writes what is wanted over m, field by field, and notes in k what is ours then. Fields that were changed by hand stay, unless they are
// to be forced; those that are no longer wanted go, if they are still as we wrote them.
func (m *model) lay(want map[string]json.RawMessage, k *mark, force bool) (changed, kept []string) {
	for _, path := range slices.Sorted(maps.Keys(want)) {
		now, last := m.at(path), k.Written[path]
		switch {
		case same(now, want[path]):
		case force, digest(now) == last: // nothing there and nothing written, or still what was
			m.put(path, want[path])
			changed = append(changed, path)
		default:
			kept = append(kept, path)
			continue
		}
		k.Written[path] = digest(want[path])
	}
	for _, path := range slices.Sorted(maps.Keys(k.Written)) {
		if _, still := want[path]; still || path == controlPath {
			continue
		}
		if digest(m.at(path)) == k.Written[path] {
			m.put(path, nil)
			changed = append(changed, path)
		}
		delete(k.Written, path)
	}
	return changed, kept
}

// clone copies as deep as put writes.
func (m *model) clone() model {
	out := *m
	out.Meta, out.Params = maps.Clone(m.Meta), maps.Clone(m.Params)
	return out
}
