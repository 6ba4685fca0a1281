package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/gateway/api"
	"qr-gateway/sampler"
)

const taskMessage = `"messages":[{"role":"user","content":"### Task:\nSuggest a title."}]`

func TestOrigin(t *testing.T) {
	header := func(task string) http.Header { return http.Header{"X-Openwebui-Task": {task}} }
	cases := []struct {
		name, body string
		header     http.Header
		want       api.Origin
	}{
		{name: "nothing said", body: `{"model":"m"}`},
		{name: "marked chat", body: `{"model":"m","qr_client":"c/1",` + taskMessage + `}`, want: api.Origin{Client: "c/1"}},
		{name: "marked in extra_body", body: `{"model":"m","extra_body":{"qr_client":"c/1"}}`, want: api.Origin{Client: "c/1"}},
		{name: "header", body: `{"model":"m","qr_client":"c/1"}`, header: header("title_generation"), want: api.Origin{Client: "c/1", Task: "title_generation"}},
		{name: "empty header", body: `{"model":"m"}`, header: header(" ")},
		{name: "endless header", body: `{"model":"m"}`, header: header(strings.Repeat("x", 200))},
		{name: "header of a client without templates", body: `{"model":"m"}`, header: header("{{TASK}}")},
		{name: "key over header", body: `{"model":"m","qr_task":"tags"}`, header: header("title_generation"), want: api.Origin{Task: "tags"}},
		{name: "no task at all", body: `{"model":"m:task","qr_task":"none",` + taskMessage + `}`, header: header("title_generation")},
		{name: "alias", body: `{"model":"m:task","qr_client":"c/1"}`, want: api.Origin{Client: "c/1", Task: "alias"}},
		{name: "looks like one", body: `{"model":"m",` + taskMessage + `}`, want: api.Origin{Task: "guessed"}},
		{name: "streams", body: `{"model":"m","stream":true,` + taskMessage + `}`},
		{name: "two messages", body: `{"model":"m","messages":[{"role":"system","content":"x"},{"role":"user","content":"### Task:"}]}`},
		{name: "parts", body: `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"### Task:"}]}]}`},
		{
			name: "ids", body: `{"model":"m"}`, header: http.Header{"X-Openwebui-Chat-Id": {"c"}, "X-Openwebui-Message-Id": {"m"}, "X-Openwebui-Task": {""}},
			want: api.Origin{ChatID: "c", MessageID: "m"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := parse(t, c.body).Origin(c.header)
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got)\n%s", err, diff)
			}
		})
	}
}

func parse(t *testing.T, body string) *api.Body {
	t.Helper()
	b, err := api.Parse([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBadOrigin(t *testing.T) {
	for _, body := range []string{
		`{"qr_client":7}`, `{"qr_client":"` + strings.Repeat("x", 129) + `"}`, `{"qr_task":"a\nb"}`, `{"extra_body":{"qr_task":[]}}`, `{"qr_task":"` + strings.Repeat("x", 65) + `"}`,
	} {
		if _, err := parse(t, body).Origin(nil); err == nil || !strings.Contains(err.Error(), "qr_") {
			t.Errorf("%.60s: %v", body, err)
		}
	}
}

// TestGiven: what a request gave is told by its keys, whatever it called them.
func TestGiven(t *testing.T) {
	body := parse(t, `{"model":"m","qr_client":"c","temperature":0.5,"seed":9,"extra_args":{"qr_alpha":"0.25"},"messages":[{"role":"user","content":"x"}]}`)
	call, err := body.Chat(sampler.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	want := []sampler.Setting{{Key: "qr_temperature", Value: 0.5}, {Key: "qr_seed", Value: int64(9)}, {Key: "qr_alpha", Value: 0.25}}
	byKey := func(s []sampler.Setting) map[string]any {
		out := map[string]any{}
		for _, e := range s {
			out[e.Key] = e.Value
		}
		return out
	}
	if diff := cmp.Diff(byKey(want), byKey(call.Given)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestPlain: a request that is made plain keeps its standard fields and nothing of ours, and what it has of ours is checked all the same.
func TestPlain(t *testing.T) {
	const messages = `"messages":[{"role":"user","content":"x"}]`
	defaults := sampler.Defaults()
	if err := defaults.Set("qr_entropy_source", "device"); err != nil {
		t.Fatal(err)
	}
	body := parse(t, `{"model":"m","temperature":0.5,"qr_alpha":0.25,`+messages+`}`)
	body.Plain()
	call, err := body.Chat(defaults)
	if err != nil {
		t.Fatal(err)
	}
	p := call.Request.Params
	if p.Decoder != sampler.DecoderPlain || p.Temperature != 0.5 || p.Alpha != nil || p.EntropySource != "" || !p.Bypass {
		t.Errorf("got %+v", p)
	}
	bad := parse(t, `{"model":"m","qr_alpha":7,`+messages+`}`)
	bad.Plain()
	if _, err := bad.Chat(defaults); err == nil || !strings.Contains(err.Error(), "qr_alpha") {
		t.Errorf("alpha of 7: %v", err)
	}
}

// TestBriefReplies: a client that can't take long lines gets no records of tokens, and is told how many there are.
func TestBriefReplies(t *testing.T) {
	res := result("stop")
	res.Stats.Records = make([]sampler.Record, 3)
	res.Stats.FlaggedTokens = map[string]int{"drift": 2, "other": 1}
	h := head()
	h.Brief, h.Record, h.Task = true, "http://h/v1/qr/records/id-1", "tags"
	for _, v := range []any{api.NewChatReply(h).Whole("text", "", res), api.NewTextReply(h).End(res, true)[1]} {
		text := string(indent(t, v))
		for _, part := range []string{`"records_dropped": 3`, `"record": "http://h/v1/qr/records/id-1"`, `"task": "tags"`, `"flagged_tokens": 3`} {
			if !strings.Contains(text, part) {
				t.Errorf("no %s in %s", part, text)
			}
		}
		if strings.Contains(text, `"records":`) {
			t.Errorf("records in %s", text)
		}
	}
	if len(res.Stats.Records) != 3 {
		t.Error("the records are gone from the result")
	}
}
