package admin

import (
	"context"
	"fmt"
	"slices"
)

// Installation is what to bring about.
type Installation struct {
	Function    Function
	Valves      Valves // laid over those that are stored
	ResetValves bool   // forget the stored ones first
	Models      bool   // write the cards of the gateways' models
	Cards       Cards
	DryRun      bool // only tell
}

// Step is one thing and what was done to it; nothing done is unchanged.
type Step struct {
	Thing string
	Did   []string
	Kept  []string // what was left as somebody set it by hand
	Note  string   // why there was nothing to do, or empty
}

// Report is what was done, in order. After a failure it ends where that happened.
type Report []*Step

// Unchanged reports whether nothing had to be done.
func (r Report) Unchanged() bool {
	return !slices.ContainsFunc(r, func(s *Step) bool { return len(s.Did) > 0 })
}

// run carries an installation or its removal out.
type run struct {
	*Client
	dry    bool
	report Report
	whole  int // of the report, that many things are finished
}

// step begins with the next thing.
func (r *run) step(thing string) *Step {
	s := &Step{Thing: thing}
	r.whole = len(r.report)
	r.report = append(r.report, s)
	return s
}

// do notes what is done, once it is; a dry run only notes it.
func (r *run) do(s *Step, said string, write func() error) error {
	if !r.dry {
		if err := write(); err != nil {
			return err
		}
	}
	s.Did = append(s.Did, said)
	return nil
}

// Install brings in about. Every part reads what is there and writes what differs.
func (c *Client) Install(ctx context.Context, in *Installation) (Report, error) {
	r := &run{Client: c, dry: in.DryRun}
	err := r.install(ctx, in)
	return r.done(err), err
}

// done is the report without a last thing that failed before anything was done to it.
func (r *run) done(err error) Report {
	last := len(r.report) - 1
	if err != nil && last >= r.whole && len(r.report[last].Did) == 0 {
		return r.report[:last]
	}
	return r.report
}

func (r *run) install(ctx context.Context, in *Installation) error {
	s := r.step("filter " + in.Function.ID)
	state, err := r.place(ctx, s, in)
	if err != nil {
		return err
	}
	if !state.Active {
		if err := r.do(s, "activated", func() error { return r.flip(ctx, state.ID, switchActive) }); err != nil {
			return err
		}
	}
	if !state.Global {
		if err := r.do(s, "made global", func() error { return r.flip(ctx, state.ID, switchGlobal) }); err != nil {
			return err
		}
	}
	if err := r.layValves(ctx, in, state.there); err != nil || !in.Models {
		return err
	}
	return r.cards(ctx, in.Cards)
}

// placed is the function once its code is in place.
type placed struct {
	Function
	there bool // in Open WebUI; false in a dry run that would create it
}

// place creates or updates the function.
func (r *run) place(ctx context.Context, s *Step, in *Installation) (placed, error) {
	want := &in.Function
	have, found, err := r.function(ctx, want.ID)
	if err != nil {
		return placed{}, err
	}
	if found && have.Type != "filter" && have.Type != "" {
		return placed{}, &Error{
			Message: fmt.Sprintf("Open WebUI has a function %s that is no filter but a %s", want.ID, have.Type), Hint: "remove it there: the filter needs that id",
		}
	}
	if err := r.functionsOn(ctx, want.ID, found); err != nil {
		return placed{}, err
	}
	if !found {
		err := r.do(s, "created"+after(want.version()), func() error { return r.createFunction(ctx, want) })
		return placed{Function: Function{ID: want.ID}, there: !r.dry}, err
	}
	if in.ResetValves {
		if err := r.resetValves(ctx, s, want.ID); err != nil {
			return placed{}, err
		}
	}
	if !have.same(want) {
		said := "updated" + after(want.version())
		if old := have.version(); old != "" && old != want.version() {
			said = fmt.Sprintf("updated %s to %s", old, want.version())
		}
		err = r.do(s, said, func() error { return r.updateFunction(ctx, want) })
	}
	have.ID = want.ID
	return placed{Function: have, there: true}, err
}

func after(version string) string {
	if version == "" {
		return ""
	}
	return " " + version
}

// resetValves comes before an update, which holds the new code against what is stored.
func (r *run) resetValves(ctx context.Context, s *Step, id string) error {
	have, err := r.valves(ctx, id)
	if err != nil || len(have) == 0 {
		return err
	}
	return r.do(s, "valves forgotten", func() error {
		_, err := r.setValves(ctx, id, nil)
		return err
	})
}

// layValves lays the valves that were asked for over the stored ones, so that nothing that somebody set by hand is lost.
func (r *run) layValves(ctx context.Context, in *Installation, there bool) error {
	if len(in.Valves) == 0 {
		return nil
	}
	s, id := r.step("valves"), in.Function.ID
	var have Valves
	if there && !(r.dry && in.ResetValves) {
		var err error
		if have, err = r.valves(ctx, id); err != nil {
			return err
		}
	}
	want := have.lay(in.Valves)
	changes := have.differences(want)
	if len(changes) == 0 {
		return nil
	}
	if !r.dry {
		stored, err := r.setValves(ctx, id, want)
		if err == nil {
			err = Valves{}.lay(in.Valves).taken(stored)
		}
		if err != nil {
			return err
		}
	}
	s.Did = append(s.Did, changes...)
	return nil
}
