package vllmtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// generation is one answer being made.
type generation struct {
	s    *Server
	o    Options
	a    ask
	r    *http.Request
	w    http.ResponseWriter
	chat bool

	step   int
	text   strings.Builder
	ids    []int32
	reason string
}

const promptTokens = 3

func (g *generation) run() {
	if g.a.Stream {
		g.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		if g.chat {
			g.event(g.chunk(`"role":"assistant","content":""`, nil, ""), `,"prompt_token_ids":[7,8,9]`)
		}
	} else {
		g.w.Header().Set("Content-Type", "application/json")
	}
	for g.reason == "" {
		text, ids, ok := g.some()
		if !ok || g.reason != "" && !g.ahead() {
			return
		}
		g.text.WriteString(text)
		g.ids = append(g.ids, ids...)
		if g.a.Stream {
			g.event(g.chunk(fmt.Sprintf(`"content":%q`, text), ids, g.reason), "")
		}
	}
	if g.a.Stream {
		if g.a.Options.Usage && !g.o.Silent {
			fmt.Fprintf(g.w, "data: {%s,\"choices\":[],\"usage\":%s}\n\n", g.head(), g.usage())
		}
		fmt.Fprint(g.w, "data: [DONE]\n\n")
		return
	}
	g.whole()
}

// some makes the tokens of one chunk.
func (g *generation) some() (text string, ids []int32, ok bool) {
	for range max(g.o.Group, 1) {
		if g.o.Hold != nil {
			g.o.Hold(g.r, g.step)
		}
		if g.r.Context().Err() != nil {
			return "", nil, false
		}
		if g.o.Cut > 0 && g.step >= g.o.Cut {
			panic(http.ErrAbortHandler)
		}
		token := g.token()
		ids = append(ids, token)
		g.step++
		switch {
		case token == 0:
			g.reason = "stop"
			return text, ids, true
		default:
			text += fmt.Sprintf(" t%d", token)
		}
		if g.step == g.a.MaxTokens {
			g.reason = "length"
			return text, ids, true
		}
	}
	return text, ids, true
}

// ahead shows the row behind the end, whose token is nobody's.
func (g *generation) ahead() bool {
	if !g.o.Ahead || !g.o.Plugin || g.a.Xargs.RID == "" {
		return true
	}
	g.s.side.Choose(g.a.Xargs.RID, g.a.Xargs.Cfg, g.step, false)
	if g.o.Hold != nil {
		g.o.Hold(g.r, g.step)
	}
	return g.r.Context().Err() == nil
}

// token is the next one.
func (g *generation) token() int32 {
	own := int32(g.step%7) + 1 // greedy
	if g.o.Plugin && g.a.Xargs.RID != "" {
		if token, chosen := g.s.side.Choose(g.a.Xargs.RID, g.a.Xargs.Cfg, g.step, g.over()); chosen {
			return token
		}
	}
	if g.over() {
		return 0
	}
	return own
}

// over says that the text is as long as it is to be.
func (g *generation) over() bool {
	length := g.o.Length
	if length == 0 {
		length = 6
	}
	return g.step >= length-1
}

func (g *generation) head() string {
	object := "text_completion"
	switch {
	case g.chat && g.a.Stream:
		object = "chat.completion.chunk"
	case g.chat:
		object = "chat.completion"
	}
	return fmt.Sprintf(`"id":"cmpl-far","object":%q,"created":5,"model":%q,"system_fingerprint":"vllm-0.32.0"`, object, g.o.Model)
}

func (g *generation) usage() string {
	return fmt.Sprintf(`{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":1}}`,
		promptTokens, promptTokens+len(g.ids)+g.o.More, len(g.ids)+g.o.More)
}

// named are the members that name tokens.
func (g *generation) named(ids []int32) string {
	if !g.a.IDs || g.o.NoIDs || ids == nil || g.o.Unnamed > 0 && len(g.ids) > g.o.Unnamed {
		return ""
	}
	raw, err := json.Marshal(ids)
	if err != nil {
		panic(err) // numbers can always be written
	}
	return `,"token_ids":` + string(raw)
}

func (g *generation) chunk(delta string, ids []int32, reason string) string {
	why := "null"
	if reason != "" {
		why = `"` + reason + `"`
	}
	if g.chat {
		return fmt.Sprintf(`{"index":0,"delta":{%s},"logprobs":null,"finish_reason":%s%s}`, delta, why, g.named(ids))
	}
	return fmt.Sprintf(`{"index":0,%s,"logprobs":null,"finish_reason":%s%s}`, strings.Replace(delta, `"content"`, `"text"`, 1), why, g.named(ids))
}

func (g *generation) event(choice, more string) {
	if !g.a.IDs || g.o.NoIDs {
		more = ""
	}
	fmt.Fprintf(g.w, "data: {%s,\"choices\":[%s]%s}\n\n", g.head(), choice, more)
	_ = http.NewResponseController(g.w).Flush() // whoever left has no use for it
}

func (g *generation) whole() {
	inner := fmt.Sprintf(`"text":%q`, g.text.String())
	if g.chat {
		inner = fmt.Sprintf(`"message":{"role":"assistant","content":%q}`, g.text.String())
	}
	logprobs := "null"
	if len(g.a.Logprobs) > 0 && !g.chat {
		second := "-2.5"
		if g.o.Processed {
			second = "-9999.0"
		}
		logprobs = `{"token_logprobs":[-0.5],"top_logprobs":[{"a":-0.5,"b":` + second + `}]}`
	}
	prompt := ""
	if g.a.IDs && !g.o.NoIDs {
		prompt = `,"prompt_token_ids":[7,8,9]`
	}
	fmt.Fprintf(g.w, `{%s,"choices":[{"index":0,%s,"logprobs":%s,"finish_reason":%q,"stop_reason":null%s}],"usage":%s%s,"kv_transfer_params":null}`,
		g.head(), inner, logprobs, g.reason, g.named(g.ids), g.usage(), prompt)
}
