package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/testing/protocmp"

	"qr-gateway/backends"
	"qr-gateway/backends/llama/engine"
	pb "qr-gateway/backends/llama/enginepb"
	"qr-gateway/backends/llama/worker"
	"qr-gateway/sampler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wordModel tokenises a text into one token per byte, and has a template that joins and that refuses.
type wordModel struct{ panics bool }

func (m wordModel) Tokenize(text string, addSpecial, _ bool) ([]int32, error) {
	if text == "unreadable" {
		return nil, fmt.Errorf("tokenize: %w: no line break", engine.ErrBadInput)
	}
	var ids []int32
	if addSpecial {
		ids = append(ids, 0)
	}
	for i := range len(text) {
		ids = append(ids, int32(text[i]))
	}
	return ids, nil
}

func (m wordModel) ApplyTemplate(in engine.ChatInput) (engine.ChatPrompt, error) {
	if m.panics {
		panic("a defect")
	}
	switch string(in.Messages) {
	case "refuse":
		return engine.ChatPrompt{}, &engine.TemplateError{Message: "roles must alternate"}
	case "none":
		return engine.ChatPrompt{}, engine.ErrNoTemplate
	case "bad":
		return engine.ChatPrompt{}, engine.ErrBadInput
	}
	return engine.ChatPrompt{
		Prompt: string(in.Messages) + ">", Stops: []string{"<"}, Format: []byte(`{"f":1}`), SplitsText: in.EnableThinking,
	}, nil
}

func testLoaded() *loaded {
	return &loaded{
		model: wordModel{}, context: 20, language: worker.Language{Vocab: engine.NewVocab(make([]string, 256), nil)},
	}
}

func chat(messages string, thinking bool) *pb.PrepareRequest {
	return &pb.PrepareRequest{Input: &pb.PrepareRequest_Chat{Chat: &pb.ChatInput{MessagesJson: []byte(messages), EnableThinking: thinking}}}
}

func text(prompt string) *pb.PrepareRequest {
	return &pb.PrepareRequest{Input: &pb.PrepareRequest_Text{Text: prompt}}
}

// TestFarTooLongIsNotTokenized: the work is proportional to the text and can't be stopped.
func TestFarTooLongIsNotTokenized(t *testing.T) {
	m := testLoaded()
	m.language.Vocab = engine.NewVocab([]string{"a", "four"}, nil)
	m.model = nil
	_, err := m.prepare(text(strings.Repeat("x", 80)))
	var e *backends.Error
	if !errors.As(err, &e) || e.Kind != backends.KindTooLong || e.Param != "prompt" || !strings.Contains(e.Message, "at least 20 tokens") {
		t.Errorf("got %#v", err)
	}
}

func TestPrepare(t *testing.T) {
	m := testLoaded()
	for name, c := range map[string]struct {
		req  *pb.PrepareRequest
		want *pb.PrepareResponse
	}{
		"text": {&pb.PrepareRequest{Input: &pb.PrepareRequest_Text{Text: "hi"}}, &pb.PrepareResponse{Tokens: []int32{0, 'h', 'i'}, Prompt: "hi"}},
		"tokens": {
			&pb.PrepareRequest{Input: &pb.PrepareRequest_Tokens{Tokens: &pb.TokenInput{Ids: []int32{1, 255}}}},
			&pb.PrepareResponse{Tokens: []int32{1, 255}},
		},
		"chat": {chat("hi", false), &pb.PrepareResponse{Tokens: []int32{'h', 'i', '>'}, Prompt: "hi>", Stops: []string{"<"}}},
	} {
		got, err := m.prepare(c.req)
		if diff := cmp.Diff(c.want, got, protocmp.Transform()); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", name, err, diff)
		}
	}
}

func TestPrepareRefuses(t *testing.T) {
	m := testLoaded()
	for name, c := range map[string]struct {
		req               *pb.PrepareRequest
		code, param, says string
	}{
		"nothing":        {&pb.PrepareRequest{}, "invalid_value", "prompt", "no prompt"},
		"too long":       {chat(strings.Repeat("x", 19), false), "context_length_exceeded", "messages", "20"},
		"template":       {chat("refuse", false), "template_error", "messages", "roles must alternate"},
		"no template":    {chat("none", false), "no_chat_template", "messages", ""},
		"unreadable":     {text("unreadable"), "invalid_value", "prompt", "no line break"},
		"bad messages":   {chat("bad", false), "invalid_messages", "messages", ""},
		"token too high": {&pb.PrepareRequest{Input: &pb.PrepareRequest_Tokens{Tokens: &pb.TokenInput{Ids: []int32{256}}}}, "invalid_token", "prompt", "255"},
		"no tokens":      {&pb.PrepareRequest{Input: &pb.PrepareRequest_Tokens{Tokens: &pb.TokenInput{}}}, "empty_prompt", "prompt", ""},
	} {
		_, err := m.prepare(c.req)
		var e *backends.Error
		if !errors.As(err, &e) || e.Code != c.code || e.Param != c.param || !strings.Contains(e.Message, c.says) {
			t.Errorf("%s: got %#v", name, err)
		}
	}
}

// TestTemplatesThatOpenThinking: the end of the block must not be banned, whatever was asked for.
func TestTemplatesThatOpenThinking(t *testing.T) {
	m := testLoaded()
	for messages, want := range map[string]bool{"hi<think": true, "hi</think": false, "<think>hi": false} { // the template adds >
		res, err := m.prepare(chat(messages, false))
		if err != nil {
			t.Fatal(err)
		}
		job, err := m.job(&pb.GenerateRequest{Tokens: res.Tokens, ParamsJson: []byte("{}"), ChatFormat: res.ChatFormat})
		if err != nil || job.Thinking != want {
			t.Errorf("%s: %+v, %v", messages, job, err)
		}
	}
}

func TestChatFormatTravels(t *testing.T) {
	m := testLoaded()
	res, err := m.prepare(chat("hi", true))
	if err != nil {
		t.Fatal(err)
	}
	job, err := m.job(&pb.GenerateRequest{RequestId: "a", Tokens: res.Tokens, ParamsJson: []byte("{}"), ChatFormat: res.ChatFormat})
	if err != nil || !job.Thinking || string(job.Format) != `{"f":1}` {
		t.Errorf("%+v, %v", job, err)
	}
	for name, req := range map[string]*pb.GenerateRequest{
		"bad parameters": {Tokens: []int32{1}, ParamsJson: []byte(`{"qr_alpha": 7}`)},
		"bad format":     {Tokens: []int32{1}, ParamsJson: []byte("{}"), ChatFormat: []byte("x")},
		"bad token":      {Tokens: []int32{-1}, ParamsJson: []byte("{}")},
	} {
		var e *backends.Error
		if _, err := m.job(req); !errors.As(err, &e) || e.Kind != backends.KindInvalid {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestPlan(t *testing.T) {
	info := engine.ModelInfo{TrainedContext: 4000}
	p, err := newPlan(&pb.LoadRequest{}, info)
	if err != nil || p.context != 4000 || p.workers != 4 || p.contexts.Context < 4000+p.group+2 || p.contexts.Context%256 != 0 {
		t.Errorf("defaults: %+v, %v", p, err)
	}
	if err := p.contexts.Validate(); err != nil {
		t.Error(err)
	}
	small, err := newPlan(&pb.LoadRequest{Context: 1, Chunk: 512, FlashAttention: true}, info)
	if err != nil || small.contexts.Validate() != nil {
		t.Errorf("smallest: %+v, %v, %v", small, err, small.contexts.Validate())
	}
	for name, req := range map[string]*pb.LoadRequest{
		"workers": {Workers: 1000}, "context": {Context: 1 << 30}, "group": {Group: 64}, "chunk": {Chunk: 100},
		"threads": {Threads: 100000}, "poll": {Poll: 101}, "kv_type": {KvType: "q4"},
	} {
		_, err := newPlan(req, info)
		var e *backends.Error
		if !errors.As(err, &e) || e.Param != name {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestMailboxJoinsAndKeepsOrder(t *testing.T) {
	box := newMailbox()
	put := func(e backends.Event) {
		if err := box.put(e); err != nil {
			t.Error(err)
		}
	}
	one := []int32{1}
	put(backends.Event{Started: &backends.Started{Worker: 2, PromptTokens: 3}})
	put(backends.Event{Content: "a", Tokens: one})
	one[0] = 2 // the event's slice is the worker's own
	put(backends.Event{Content: "b", Tokens: one})
	events, open := box.take()
	want := []*pb.GenerateResponse{
		{Event: &pb.GenerateResponse_Started{Started: &pb.Started{Worker: 2, PromptTokens: 3}}},
		{Event: &pb.GenerateResponse_Delta{Delta: &pb.Delta{Content: "ab", Tokens: []int32{1, 2}}}},
	}
	if diff := cmp.Diff(want, events, protocmp.Transform()); diff != "" || !open {
		t.Errorf("open %v (-want +got)\n%s", open, diff)
	}
	put(backends.Event{Content: "c"})
	box.close()
	if events, open = box.take(); open || len(events) != 1 || events[0].GetDelta().Content != "c" {
		t.Errorf("last: %v, open %v", events, open)
	}
}

func TestMailboxLosesNothing(t *testing.T) {
	box := newMailbox()
	var group sync.WaitGroup
	group.Go(func() {
		defer box.close()
		for i := range int32(1000) {
			_ = box.put(backends.Event{Tokens: []int32{i}})
		}
	})
	var got []int32
	for open := true; open; {
		var events []*pb.GenerateResponse
		events, open = box.take()
		for _, e := range events {
			got = append(got, e.GetDelta().Tokens...)
		}
	}
	group.Wait()
	if len(got) != 1000 || got[999] != 999 {
		t.Errorf("%d tokens came through", len(got))
	}
}

// serve runs s and returns a client; both end with the test.
func serve(t *testing.T, s *Service) pb.EngineServiceClient {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	conn, err := grpc.NewClient("passthrough:engine", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return pb.NewEngineServiceClient(conn)
}

func TestServiceWithoutAModel(t *testing.T) {
	client := serve(t, New(Deps{Log: slog.New(slog.DiscardHandler)}))
	_, err := client.Prepare(t.Context(), chat("x", false))
	if e := pb.FromStatus(err); e == nil || e.Kind != backends.KindUnavailable {
		t.Errorf("prepare: %v", err)
	}
	stream, err := client.Generate(t.Context(), &pb.GenerateRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if e := pb.FromStatus(err); e == nil || e.Kind != backends.KindUnavailable {
		t.Errorf("generate: %v", err)
	}
	if _, err := client.Load(t.Context(), &pb.LoadRequest{ModelPath: "/nonexistent/model.gguf"}); err == nil {
		t.Error("a missing model was loaded")
	}
	_, err = client.Load(t.Context(), &pb.LoadRequest{})
	if e := pb.FromStatus(err); e == nil || e.Code != "already_loaded" {
		t.Errorf("second load: %v", err)
	}
}

func TestPanicIsOneRequestsError(t *testing.T) {
	s := New(Deps{Log: slog.New(slog.DiscardHandler)})
	m := testLoaded()
	m.model = wordModel{panics: true}
	s.loaded.Store(m)
	client := serve(t, s)
	_, err := client.Prepare(t.Context(), chat("x", false))
	if e := pb.FromStatus(err); e == nil || e.Kind != backends.KindInternal {
		t.Errorf("got %v", err)
	}
	if _, err := client.Tokenize(t.Context(), &pb.TokenizeRequest{Text: "x"}); err != nil {
		t.Errorf("after the panic: %v", err)
	}
}

// Of the tokens a format names, those that the think-ban would take away are allowed: one token each, the marks of thinking not.
func TestTokensOfTheFormatAreAllowed(t *testing.T) {
	m := &loaded{model: wordModel{}, language: worker.Language{Think: sampler.NewMask('c', 'm', 'x')}}
	got := m.preserved([]string{"c", "free", "m", "<think>", "y"})
	if diff := cmp.Diff([]int32{'c', 'm'}, got); diff != "" {
		t.Error(diff)
	}
}
