package jsonlines_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"qr-gateway/sampler"
	"qr-gateway/sampler/jsonlines"
)

// known are the presets of the tests.
type known struct{}

func (known) Values(name string) (map[string]any, error) {
	if name != "cold" {
		return nil, sampler.UnknownPreset(name, []string{"cold"})
	}
	return map[string]any{"qr_temperature": 0.0, "qr_top_k": 2}, nil
}

// run answers lines and returns what came out, one object a line.
func run(t testing.TB, lines ...string) []map[string]any {
	t.Helper()
	var out bytes.Buffer
	if _, err := jsonlines.Run(sampler.Defaults(), known{}, strings.NewReader(strings.Join(lines, "\n")), &out); err != nil {
		t.Fatal(err)
	}
	var answers []map[string]any
	dec := json.NewDecoder(&out)
	for dec.More() {
		var a map[string]any
		if err := dec.Decode(&a); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
	}
	if len(answers) != len(lines) {
		t.Fatalf("%d answers to %d lines", len(answers), len(lines))
	}
	return answers
}

// selection is one case of the published selector vectors, as far as it is needed here.
type selection struct {
	Vector       string    `json:"vector"`
	Temperature  float64   `json:"temperature"`
	TopK         int       `json:"top_k"`
	TopP         float64   `json:"top_p"`
	MinP         float64   `json:"min_p"`
	First        bool      `json:"truncate_first"`
	U            []float64 `json:"u"`
	Token        []*int32  `json:"token"`
	Prob         []float64 `json:"prob"`
	NumCandidate int       `json:"num_candidates"`
}

func selections(t *testing.T) (rows map[string]struct{ Logits []any }, cases []selection) {
	t.Helper()
	data, err := os.ReadFile("../testdata/selector.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vectors map[string]struct{ Logits []any }
		Cases   []selection
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file.Vectors, file.Cases
}

// TestPublishedSelections holds that a line of JSON chooses what the published numbers say.
func TestPublishedSelections(t *testing.T) {
	rows, cases := selections(t)
	compared := 0
	for _, c := range cases {
		logits, unusual := rows[c.Vector].Logits, c.Temperature < 0 || c.TopP > 1 || c.TopP < 0 || c.MinP > 1 || c.MinP < 0 || c.TopK < 0
		if logits == nil || unusual { // made by a formula, or refused as a parameter
			continue
		}
		for i, u := range c.U {
			line, err := json.Marshal(map[string]any{"logits": logits, "u": u, "params": map[string]any{
				"qr_temperature": c.Temperature, "qr_top_k": c.TopK, "qr_top_p": c.TopP, "qr_min_p": c.MinP, "qr_truncate_first": c.First,
			}})
			if err != nil {
				t.Fatal(err)
			}
			a := run(t, string(line))[0]
			if c.Token[i] != nil && a["token"] != float64(*c.Token[i]) || a["candidates"] != float64(c.NumCandidate) {
				t.Errorf("%s: got %v, want token %d of %d", line, a, *c.Token[i], c.NumCandidate)
			}
			if p, _ := a["probability"].(float64); math.Abs(p-c.Prob[i]) > 1e-12 {
				t.Errorf("%s: probability %v, want %v", line, p, c.Prob[i])
			}
			compared++
		}
	}
	if compared < 1000 {
		t.Errorf("only %d choices were compared", compared)
	}
}

// TestStreamRemembers holds that a strategy's state goes on over the lines of a stream, apart from other streams, and that a history does the same.
func TestStreamRemembers(t *testing.T) {
	drift := `"params": {"qr_temperature_strategy": "hvh_drift"}`
	l2, l3 := `"logits": [4,3.5,1,0,0,-1,-3,-8], "u": 0.5`, `"logits": [0,0,0,0,0,0,0,0], "u": 0.5`
	past := `"history": [{"logits": [4,3.5,1,0,0,-1,-3,-8], "token": 0}, {"logits": [0,0,0,0,0,0,0,0], "token": 3}]`
	answers := run(t,
		`{"stream": "a", `+l2+`, `+drift+`}`, `{"stream": "b", `+l3+`, `+drift+`}`,
		`{"stream": "a", `+l3+`}`, `{"stream": "a", `+l2+`, `+drift+`}`, `{`+l2+`, `+drift+`, `+past+`}`, `{`+l2+`, `+drift+`}`)
	want := []float64{1.4857086271413207, 1.35 + 0.3*2.0794415416798357, 2.2, 1.4690761481919, 1.4690761481919, 1.4857086271413207}
	for i, w := range want {
		if got, _ := answers[i]["temperature"].(float64); math.Abs(got-w) > 1e-11 {
			t.Errorf("line %d: temperature %v, want %v", i+1, got, w)
		}
	}
}

// TestBadLines holds that each bad line is told what is wrong with it and hurts no other.
func TestBadLines(t *testing.T) {
	bad := map[string]string{
		`{"logits": [1, 2], "u": 1}`:                                                               "u is 1; it lies strictly between 0 and 1",
		`{"logits": [1, 2]}`:                                                                       "nothing to make a number of",
		`{"logits": []}`:                                                                           "logits is missing or empty",
		`{"logits": {"a": 1}, "u": 0.5}`:                                                           "logits is not a list",
		`{"logits": [1, "x"], "u": 0.5}`:                                                           "logits[1] is x",
		`{"logits": [null, "-inf"], "u": 0.5}`:                                                     "no finite logit",
		`{"logits": [1, 2], "u": 0.5, "bytes": "00"}`:                                              "give one of them",
		`{"logits": [1, 2], "bytes": "0g"}`:                                                        "hexadecimal digits",
		`{"logits": [1, 2], "bytes": ""}`:                                                          "bytes is empty",
		`{"logits": [1, 2], "u": 0.5, "params": {"qr_top_k": "many"}}`:                             "qr_top_k",
		`{"logits": [1, 2], "u": 0.5, "params": {"qr_to_k": 1}}`:                                   `did you mean "qr_top_k"`,
		`{"logits": [1, 2], "bytes": "00", "params": {"qr_amplifier": "ecdf"}}`:                    "calibration",
		`{"logits": [1, 2], "u": 0.5, "extra": 1}`:                                                 "extra",
		`{"logits": [1, 2], "u": 0.5, "history": [{"logits": [1, 2], "token": 2}]}`:                "history[0]: token is 2",
		`{"logits": [1, 2], "u": 0.5, "stream": "s", "history": [{"logits": [1, 2], "token": 1}]}`: "stream and history",
		`{"logits": [1, 2], "u": 0.5, "banned": [-1]}`:                                             "banned[0] is -1",
		`nonsense`:                         "read line",
		`[1]`:                              "read line: it is JSON, but no object: array",
		`{"logits": [1, 2], "u": "a"}`:     "read line: u can't be a JSON string",
		`{"logits": [1, 1e400], "u": 0.5}`: "logits[1] is 1e400; it takes a number",
		`{"logits": [1, 2], "u": 0.5, "params": {"qr_preset": "warm"}}`:                            `qr_preset is "warm"; it takes one of cold`,
		`{"logits": [1, 2], "u": 0.5, "params": {"qr_preset": 7}}`:                                 "qr_preset is 7",
		`{"logits": [1, 2], "u": 0.5, "params": {"qr_temperature": 1, "qr_fixed_temperature": 2}}`: "one parameter; give one of them",
		`{"logits": [1, 2], "u": 0.5, "params": {"qr_alpha": 0.5}}`:                                "look-ahead needs a model",
		`{"logits": [1, 2], "u": 0.5, "params": {"qr_ecdf_calibration_samples": 200}}`:             "belongs to the process",
		`{"logits": [1, 2], "u": 0.5, "params": {"temperature": "1"}}`:                             `temperature is "1"`,
		`{"logits": [1, 2], "u": 0.5} {}`:                                                          "text follows",
	}
	for line, want := range bad {
		answers := run(t, line, `{"logits": [1, 2], "u": 0.99}`)
		e, _ := answers[0]["error"].(map[string]any)
		if msg, _ := e["message"].(string); !strings.Contains(msg, want) {
			t.Errorf("%s: got %v, want an error with %q", line, answers[0], want)
		}
		if answers[1]["token"] != 0.0 {
			t.Errorf("the line after %s got %v", line, answers[1])
		}
	}
}

// TestParamsAsInARequest holds that the parameters of a line mean what they mean in a request.
func TestParamsAsInARequest(t *testing.T) {
	for _, c := range []struct {
		params      string
		temperature float64
		afterTopK   float64
	}{
		{`{}`, 1, 3},
		{`{"qr_preset": "cold", "temperature": 0.5}`, 0.5, 2},
		{`{"qr_preset": "cold", "temperature": 0.5, "qr_temperature": 0.7}`, 0.7, 2},
		{`{"qr_preset": "cold", "qr_fixed_temperature": 0.7, "qr_top_k": null}`, 0.7, 2},
		{`{"qr_temperature": null, "temperature": null, "qr_preset": null}`, 1, 3},
		{`{"qr_bypass": true, "qr_top_k": 1, "qr_temperature": 3, "temperature": 0.5}`, 0.5, 3},
		{`{"qr_decoder": "plain", "qr_alpha": 0.5}`, 1, 3},
	} {
		a := run(t, `{"logits": [2, 1, 0], "u": 0.5, "params": `+c.params+`}`)[0]
		if a["temperature"] != c.temperature || a["after_top_k"] != c.afterTopK {
			t.Errorf("%s: got temperature %v and %v after top-k, want %v and %v (%v)", c.params, a["temperature"], a["after_top_k"], c.temperature, c.afterTopK, a["error"])
		}
	}
}

// TestSeedsAreNotRounded holds that neighbours beyond 2^53 are different seeds.
func TestSeedsAreNotRounded(t *testing.T) {
	answers := run(t, `{"logits": [2, 1], "params": {"qr_seed": 9007199254740992}}`, `{"logits": [2, 1], "params": {"qr_seed": 9007199254740993}}`,
		`{"logits": [2, 1], "params": {"qr_seed": -9223372036854775808}}`)
	if answers[0]["u"] == answers[1]["u"] || answers[2]["u"] == nil {
		t.Errorf("got %v", answers)
	}
}

// TestStreamEndsWithItsError holds that a stream whose state is in doubt, or that never began as it was meant to, is not gone on with.
func TestStreamEndsWithItsError(t *testing.T) {
	answers := run(t, `{"stream": "a", "logits": [1, 2], "u": 0.5}`, `{"stream": "a", "logits": [1, 2, 3], "u": 0.5}`,
		`{"stream": "a", "logits": [1, 2], "u": 0.5}`, `{"stream": "b", "logits": [1, 2], "u": 0.5}`,
		`{"stream": "c", "logits": [1, 2], "u": 0.5, "params": {"qr_top_p": 5}}`, `{"stream": "c", "logits": [1, 2], "u": 0.5}`,
		`{"stream": "b", "logits": [1, 2], "u": 5}`, `{"stream": "b", "logits": [1, 2], "u": 0.5}`, `{"stream": "b", "logits": [1, 2], "u": 0.5}`,
		`{"stream": "d", "logits": [1, 2], "u": "x"}`, `{"logits": [1, 2], "u": 0.5, "stream": "d"}`)
	for i, want := range []string{
		"", "row has 3 logits", "ended with the error of line 2", "", "qr_top_p is 5", "ended with the error of line 5",
		"u is 5", "ended with the error of line 7", "ended with the error of line 7", "u can't be", "ended with the error of line 10",
	} {
		if got := fmt.Sprint(answers[i]["error"]); (want == "") != (answers[i]["error"] == nil) || !strings.Contains(got, want) {
			t.Errorf("line %d: got %v, want %q", i+1, answers[i], want)
		}
	}
}

func FuzzRun(f *testing.F) {
	f.Add(`{"logits": [2, 1, null], "u": 0.9, "params": {"qr_temperature_strategy": "gdt"}}`)
	f.Add(`{"stream": "a", "logits": [2, 1], "bytes": "c8ff"}`)
	f.Add(`{"logits": [1, 2], "number": {"u": 0.9}, "history": [{"logits": [1, 2], "token": 1}]}`)
	f.Fuzz(func(t *testing.T, line string) {
		line = strings.Map(func(r rune) rune {
			if r == '\n' || r == '\r' {
				return ' '
			}
			return r
		}, line)
		var out bytes.Buffer
		sum, err := jsonlines.Run(sampler.Defaults(), known{}, strings.NewReader(line), &out)
		if err != nil || bytes.Count(out.Bytes(), []byte("\n")) != sum.Lines {
			t.Fatalf("%d lines, error %v, answer %s", sum.Lines, err, out.Bytes())
		}
		if sum.Lines > 0 && !json.Valid(out.Bytes()) {
			t.Fatalf("answer is not JSON: %s", out.Bytes())
		}
	})
}
