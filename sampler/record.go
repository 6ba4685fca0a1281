package sampler

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"qr-gateway/sampler/temper"
)

// Record is one token, whole: how it was chosen and what the number was made of. Names in JSON are those that qr-sampler's records have where
// it has the field; ours stand beside them. A number that there is none of is null, a text, time or flag is left out.
//
// The sampler reads no clock: TimestampNS is when the bytes arrived, and the caller sets TotalMS, and TimestampNS where no bytes were
// drawn.
type Record struct {
	TimestampNS int64      `json:"timestamp_ns"` // of the choice, since 1970
	Step        int        `json:"step"`         // of the token within the answer, from 0
	Token       int32      `json:"token_id"`
	Previous    int32      `json:"previous_token_id"`         // in the answer; -1 for none
	Rank        int        `json:"token_rank"`                // 0 is the most probable; -1 where it is not known
	Prob        Maybe      `json:"token_prob"`                // among the candidates
	Candidates  int        `json:"num_candidates"`            // after every cut
	AfterTopK   int        `json:"num_after_top_k"`           // 0 where it was not counted
	AfterMinP   int        `json:"num_after_min_p"`           // 0 where it was not counted
	U           Maybe      `json:"u_value"`                   // the number that decided; null where nothing was left to chance
	Covered     Maybe      `json:"covered_mass,omitzero"`     // of a token that a [Head] decided: share of the row, at temperature 1, in it
	ProbError   Maybe      `json:"token_prob_error,omitzero"` // what Prob may be off by; not there where it is exact
	Preset      string     `json:"preset_active"`             // name, or empty
	ConfigHash  string     `json:"config_hash"`               // first 16 hex digits of the SHA-256 of the parameters
	TotalMS     Maybe      `json:"total_sampling_ms"`         // all of the choice, set by the caller
	Strategy    string     `json:"temperature_strategy"`      // and what it decided:
	Temperature float64    `json:"temperature_used"`
	MinP        float64    `json:"min_p_used"`
	H           Maybe      `json:"shannon_entropy"`         // nats
	VH          Maybe      `json:"varentropy"`              // nats^2
	HNorm       Maybe      `json:"shannon_entropy_norm"`    // H over the logarithm of the vocabulary
	HEMA        Maybe      `json:"h_ema"`                   // hvh_drift
	VHEMA       Maybe      `json:"vh_ema"`                  // hvh_drift
	GateOpen    *bool      `json:"gate_open,omitempty"`     // coherence_gate
	GateBoost   Maybe      `json:"gate_boost"`              // coherence_gate
	Diagnostics Notes      `json:"strategy_diagnostics"`    // all that the strategy noted
	Lookahead   *Lookahead `json:"lookahead,omitempty"`     // where the token was chosen by what follows it
	Source      string     `json:"entropy_source_used"`     // the one that served; none where nothing was drawn
	Fallback    bool       `json:"entropy_is_fallback"`     // it was a second choice
	Device      string     `json:"entropy_device,omitzero"` // as the source says
	Class       string     `json:"entropy_class,omitzero"`  // freshness
	FetchMS     Maybe      `json:"entropy_fetch_ms"`        // between request and arrival
	RequestedNS int64      `json:"entropy_requested_ns,omitzero"`
	ArrivedNS   int64      `json:"entropy_arrived_ns,omitzero"`
	ServerNS    int64      `json:"entropy_server_timestamp_ns,omitzero"` // when the server says the bytes were made
	Bytes       int        `json:"entropy_bytes"`                        // received
	SHA256      string     `json:"entropy_sha256,omitzero"`              // of the bytes received
	Sequence    uint64     `json:"entropy_sequence,omitzero"`
	Echoed      *bool      `json:"entropy_echo_verified,omitempty"` // the source sent back what marks this very request
	Shots       int        `json:"entropy_shots,omitzero"`
	Discarded   int64      `json:"entropy_discarded,omitzero"`
	// Flags are names of what was noticed about the bytes.
	Flags []string `json:"entropy_flags,omitempty"`

	Amplifier   string `json:"amplifier"`   // none where nothing was drawn
	Mean        Maybe  `json:"sample_mean"` // of the bytes
	Z           Maybe  `json:"z_score"`
	SEM         Maybe  `json:"sem"` // standard error of the mean
	EcdfRank    int    `json:"ecdf_rank,omitzero"`
	EcdfSize    int    `json:"ecdf_size,omitzero"`
	Calibration string `json:"calibration_hash,omitzero"` // what the bytes were measured to be; empty: taken to be uniform

	Pipelined bool   `json:"entropy_pipelined"`              // the bytes were asked for before the logits existed
	Hit       *bool  `json:"entropy_prefetch_hit,omitempty"` // false: asked for, but others were used
	Nonce     string `json:"entropy_nonce,omitzero"`         // 16 hex digits; see [VerifyNonce]
	Salt      string `json:"entropy_salt,omitzero"`          // hex

	DrawZ          Maybe  `json:"draw_z"` // what a server says about a number of its own
	DrawCoherenceZ Maybe  `json:"draw_coherence_z"`
	DrawCoherenceR Maybe  `json:"draw_coherence_r"`
	DrawValid      *bool  `json:"draw_coherence_valid,omitempty"`
	DrawSourceID   string `json:"draw_source_id,omitzero"`
	Purity         string `json:"purity_label,omitzero"`
	Integrated     int    `json:"integrated_bytes,omitzero"`
	Integrator     string `json:"integrator,omitzero"`
}

// Lookahead is what looking past the candidates found.
type Lookahead struct {
	Alpha   float64 `json:"alpha"`
	Score   Maybe   `json:"score"`            // of the token, with p relative to the largest; null where it was not looked at
	H       Maybe   `json:"h"`                // entropy that follows the token, in [0,1]
	Peeks   int     `json:"peeks"`            // candidates looked at,
	Rounds  int     `json:"rounds"`           // in so many batches
	Skipped bool    `json:"skipped,omitzero"` // decided by the confidence threshold
}

// none is the source and the amplifier of a token that nothing was drawn for.
const none = "none"

// Record tells the token that was accepted last. It is to be called before the next Plan. It allocates. A decoder that looks ahead fills in what
// it knows, see lookahead's Outcome.
func (s *Stream) Record() Record {
	p, d := &s.plan, &s.last.draw
	r := Record{
		Step: s.last.step, Token: d.Token, Previous: s.last.prev, Rank: d.Rank, Prob: Maybe(d.Prob),
		Candidates: d.Candidates, AfterTopK: d.AfterTopK, AfterMinP: d.AfterMinP, U: Maybe(d.U), Covered: Maybe(d.Covered), ProbError: Maybe(d.ProbErr),
		Preset: s.p.Preset, ConfigHash: s.configHash(), TotalMS: Maybe(math.NaN()),
		Strategy: p.Strategy, Temperature: p.Temperature, MinP: p.MinP, H: Maybe(p.H), VH: Maybe(p.VH), HNorm: Maybe(p.HNorm),
		Source: none, Amplifier: none,
	}
	if d.U == 0 {
		r.U = Maybe(math.NaN())
	}
	r.note(p.Notes)
	r.draw(s.last.ev)
	return r
}

// note takes the strategy's diagnostics.
func (r *Record) note(notes []temper.Note) {
	nan := Maybe(math.NaN())
	r.HEMA, r.VHEMA, r.GateBoost = nan, nan, nan
	r.Diagnostics = append(Notes{}, notes...)
	for _, n := range notes {
		switch n.Name {
		case "h_ema":
			r.HEMA = Maybe(n.Value)
		case "vh_ema":
			r.VHEMA = Maybe(n.Value)
		case "gate_open":
			r.GateOpen = new(n.Value != 0)
		case "gate_boost":
			r.GateBoost = Maybe(n.Value)
		}
	}
}

// draw takes what the number was made of.
func (r *Record) draw(e *Evidence) {
	nan := Maybe(math.NaN())
	r.FetchMS, r.Mean, r.Z, r.SEM, r.DrawZ, r.DrawCoherenceZ, r.DrawCoherenceR = nan, nan, nan, nan, nan, nan, nan
	if e == nil {
		return
	}
	r.block(&e.Block)
	v := e.For(r.Token)
	if math.IsNaN(float64(r.U)) {
		r.U = Maybe(v.U)
	}
	r.Bytes, r.Amplifier, r.Mean, r.Z, r.SEM, r.EcdfRank, r.EcdfSize = e.Bytes, e.Amplifier, Maybe(v.Mean), Maybe(v.Z), Maybe(v.SEM), v.Rank, v.Of
	if e.Calibration != nil {
		r.Calibration = e.Calibration.Hash()
	}
	if sum, ok := e.Digest(); ok {
		r.SHA256 = hex.EncodeToString(sum[:])
	}
	if a := e.Asked; a != nil {
		r.Pipelined, r.Hit, r.Nonce, r.Salt = a.Hit, new(a.Hit), fmt.Sprintf("%016x", a.Nonce), hex.EncodeToString(a.Salt[:])
	}
	if n := e.Number; n != nil {
		r.DrawZ, r.DrawCoherenceZ, r.DrawCoherenceR, r.DrawValid = Maybe(n.Z), Maybe(n.CoherenceZ), Maybe(n.CoherenceR), new(n.Coherent)
		r.DrawSourceID, r.Purity, r.Integrated, r.Integrator = n.SourceID, n.Purity, n.Bytes, n.Integrator
	}
}

func (r *Record) block(b *Block) {
	r.Source, r.Fallback, r.Device, r.Class = b.Source, b.Fallback, b.Device, b.Class
	r.Sequence, r.Shots, r.Discarded, r.Flags = b.Sequence, b.Shots, b.Discarded, b.Flags
	r.RequestedNS, r.ArrivedNS, r.ServerNS = nanos(b.Requested), nanos(b.Arrived), nanos(b.ServerTime)
	if !b.Arrived.IsZero() {
		r.TimestampNS = r.ArrivedNS
		r.FetchMS = Maybe(float64(b.Arrived.Sub(b.Requested)) / float64(time.Millisecond))
		r.Echoed = new(b.Echoed)
	}
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// configHash names the parameters: the first 16 hex digits of the SHA-256 of their JSON with sorted keys. No secret is among them.
func (s *Stream) configHash() string {
	if s.hash == "" {
		s.hash = ConfigHash(s.p)
	}
	return s.hash
}

// ConfigHash names p: the first 16 hex digits of the SHA-256 of its JSON with sorted keys.
func ConfigHash(p *Params) string {
	data, err := json.Marshal(p)
	var object map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(data, &object)
	}
	if err == nil {
		data, err = json.Marshal(object)
	}
	if err != nil { // of a value that Validate refuses
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// Maybe is a number that there may be none of: NaN, in JSON null.
type Maybe float64

// MarshalJSON implements json.Marshaler.
func (m Maybe) MarshalJSON() ([]byte, error) {
	if v := float64(m); math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(m))
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Maybe) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*m = Maybe(math.NaN())
		return nil
	}
	return json.Unmarshal(data, (*float64)(m))
}

// Notes are a strategy's diagnostics; in JSON an object.
type Notes []temper.Note

// MarshalJSON implements json.Marshaler.
func (n Notes) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, v := range n {
		if i > 0 {
			b = append(b, ',')
		}
		var value any = Maybe(v.Value)
		if v.Text != "" {
			value = v.Text
		}
		name, err := json.Marshal(v.Name)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), text...)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *Notes) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	*n = nil
	open, err := dec.Token()
	if err != nil || open == nil {
		return err
	}
	if open != json.Delim('{') {
		return fmt.Errorf("decode notes: %v is not an object", open)
	}
	for dec.More() {
		note, err := readNote(dec)
		if err != nil {
			return fmt.Errorf("decode notes: %w", err)
		}
		*n = append(*n, note)
	}
	return nil
}

// readNote reads a name and its value.
func readNote(dec *json.Decoder) (temper.Note, error) {
	name, err := dec.Token()
	if err != nil {
		return temper.Note{}, err
	}
	note := temper.Note{Name: fmt.Sprint(name)}
	value, err := dec.Token()
	if err != nil {
		return note, err
	}
	switch v := value.(type) {
	case string:
		note.Text = v
	case float64:
		note.Value = v
	case nil:
		note.Value = math.NaN()
	default:
		return note, fmt.Errorf("%v is not a number or a text", v)
	}
	return note, nil
}
