package api_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/gateway/api"
	"qr-gateway/sampler"
)

// TestSampledReads holds what is made of a request to a server whose tokens are chosen here.
func TestSampledReads(t *testing.T) {
	const head = `{"model":"m","messages":[{}],"temperature":0.5,"top_k":7,"logprobs":true,"n":2,"big":12345678901234567890`
	own := sampler.Defaults()
	if errs := own.Lay(map[string]any{"qr_top_p": 0.9}); len(errs) > 0 {
		t.Fatal(errs)
	}
	for name, c := range map[string]struct {
		more     string
		defaults sampler.Params
		sampled  bool
		given    []string
	}{
		"nothing of ours": {more: `,"qr_task":"t","qr_alpha":null`, defaults: sampler.Defaults()},
		"given":           {more: `,"qr_top_k":3,"extra_body":{"qr_min_p":0.1}`, defaults: sampler.Defaults(), sampled: true, given: []string{"qr_temperature", "qr_top_k", "qr_min_p"}},
		"defaults":        {defaults: own, sampled: true, given: []string{"qr_temperature", "qr_top_k"}},
	} {
		b, err := api.Parse([]byte(head + c.more + "}"))
		must(t, err)
		call, err := b.Sampled(api.Passing{Path: api.ChatPath, Model: "m"}, c.defaults)
		must(t, err)
		if diff := cmp.Diff(exact(t, []byte(head+"}")), exact(t, call.Request.Raw)); diff != "" || call.Request.Sampled != c.sampled {
			t.Errorf("%s: sampled %t, what goes on (-client's +ours):\n%s", name, call.Request.Sampled, diff)
		}
		var given []string
		for _, s := range call.Given {
			given = append(given, s.Key)
		}
		if diff := cmp.Diff(c.given, given); diff != "" {
			t.Errorf("%s: given (-want +got):\n%s", name, diff)
		}
		if p := call.Request.Params; c.sampled && (p.Temperature != 0.5 || p.TopP != c.defaults.TopP || p.TopK == 0) {
			t.Errorf("%s: parameters %+v", name, p)
		}
	}
}

// TestComplete holds what the end of an answer gets: what is known of it, and no long lines for clients that can't take them.
func TestComplete(t *testing.T) {
	one := backends.DecodeStats{Decoder: "plain", Tokens: 1, Records: []sampler.Record{{Step: 0}}}
	res := &backends.Result{Stats: backends.DecodeStats{Decoder: "plain", Tokens: 2, Choices: []backends.DecodeStats{one, one}}}
	type told struct {
		Usage map[string]any
		QR    struct {
			Tokens  int
			Choices []struct {
				Records []any
				Dropped int `json:"records_dropped"`
			}
		}
		Big json.Number
	}
	for _, brief := range []bool{false, true} {
		h := api.Head{Brief: brief, Record: "http://h/r"}
		raw, err := h.Complete([]byte(`{"big":12345678901234567890,"usage":{"total_tokens":3}}`), res)
		must(t, err)
		var got told
		must(t, json.Unmarshal(raw, &got))
		summary, _ := got.Usage["qr"].(map[string]any)
		if got.Big != "12345678901234567890" || got.Usage["total_tokens"] != 3.0 || summary["tokens"] != 2.0 || summary["record"] != "http://h/r" || got.QR.Tokens != 2 {
			t.Errorf("the end is %s", raw)
		}
		for _, k := range got.QR.Choices {
			if (len(k.Records) == 0) != brief || (k.Dropped == 1) != brief {
				t.Errorf("brief %t: the end is %s", brief, raw)
			}
		}
	}
	if len(one.Records) != 1 || len(res.Stats.Choices[0].Records) != 1 {
		t.Error("the result was changed")
	}
	if raw, err := (&api.Head{}).Complete([]byte(`{"usage":null}`), res); err != nil || string(raw[:22]) != `{"usage":null,"qr":{"d` {
		t.Errorf("the end is %s, %v", raw, err)
	}
	if _, err := (&api.Head{}).Complete(nil, res); err == nil {
		t.Error("nothing was completed")
	}
}
