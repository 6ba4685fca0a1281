package admin

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Uninstall takes away the filter with its valves, and what was written on cards. Of a card, what somebody wrote by hand stays.
func (c *Client) Uninstall(ctx context.Context, id string, dry bool) (Report, error) {
	r := &run{Client: c, dry: dry}
	err := r.uninstall(ctx, id)
	return r.done(err), err
}

func (r *run) uninstall(ctx context.Context, id string) error {
	_, found, err := r.function(ctx, id)
	if err != nil {
		return err
	}
	s := r.step("filter " + id)
	if found {
		if err := r.do(s, "removed, with its valves", func() error { return r.deleteFunction(ctx, id) }); err != nil {
			return err
		}
	}
	r.whole = len(r.report)
	all, err := r.baseModels(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		if _, ours := all[i].mark(); !ours {
			continue
		}
		if err := r.stripCard(ctx, all[i].ID); err != nil {
			return err
		}
	}
	return nil
}

// stripCard reads the whole card, of which the list may leave parts out.
func (r *run) stripCard(ctx context.Context, id string) error {
	have, found, err := r.model(ctx, id)
	if err != nil || !found {
		return err
	}
	s := r.step("model " + id)
	m := have.clone()
	k, _ := m.mark()
	s.Kept = names(m.strip(&k), true)
	grants := slices.Clone(have.Grants)
	if k.Public {
		grants = slices.DeleteFunc(grants, func(g grant) bool { return g == everyone() })
	}
	if k.Created && m.empty() && len(grants) == 0 {
		return r.do(s, "card removed", func() error { return r.deleteModel(ctx, id) })
	}
	if err := r.do(s, "our part of the card removed", func() error { return r.updateModel(ctx, &m) }); err != nil || len(grants) == len(have.Grants) {
		return err
	}
	return r.do(s, "closed to all users", func() error { return r.setGrants(ctx, &m, grants) })
}

// strip takes away what we wrote and is still so, and the note.
func (m *model) strip(k *mark) (kept []string) {
	for _, path := range slices.Sorted(maps.Keys(k.Written)) {
		if now := m.at(path); now != nil && digest(now) != k.Written[path] {
			kept = append(kept, path)
			continue
		}
		m.put(path, nil)
	}
	m.put(markPath, nil)
	return kept
}

// empty reports whether the card says nothing: what is left is what Open WebUI puts on every card.
func (m *model) empty() bool {
	if m.at("name") != nil {
		return false
	}
	for key, value := range m.Meta {
		if key != "profile_image_url" && !blank(value) || key == "profile_image_url" && !plainPicture(value) {
			return false
		}
	}
	for _, value := range m.Params {
		if !blank(value) {
			return false
		}
	}
	return true
}

func blank(value json.RawMessage) bool {
	v := strings.TrimSpace(string(value))
	return present(value) == nil || v == "{}" || v == "[]"
}

// plainPicture is no picture, or the one that every model has.
func plainPicture(value json.RawMessage) bool {
	return blank(value) || strings.Contains(string(value), "/static/favicon")
}
