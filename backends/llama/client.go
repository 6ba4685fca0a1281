package llama

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"qr-gateway/backends"
	pb "qr-gateway/backends/llama/enginepb"
	"qr-gateway/sampler"
)

// prepareTries is how often a Prepare is sent when the engine dies under it: it changes nothing, so it may be repeated.
const prepareTries = 3

// generateTries is the same for a Generate that has brought nothing. It is less: the request itself may have ended the engine.
const generateTries = 2

// Prepare implements [backends.Backend]. It waits for an engine that restarts.
func (b *Backend) Prepare(ctx context.Context, req *backends.Request) (*backends.Prepared, error) {
	in, err := prepareRequest(req)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		s, err := b.serving(ctx)
		if err != nil {
			return nil, err
		}
		res, err := s.client.Prepare(ctx, in)
		if err == nil {
			return prepared(req, res, int(s.model.Context)), nil
		}
		if err = b.callError(ctx, err); !errors.Is(err, backends.ErrLost) || try == prepareTries {
			return nil, err
		}
		if err := b.superseded(ctx, s, err); err != nil {
			return nil, err
		}
	}
}

// superseded waits until the supervisor has noticed that the engine of s is no more. It returns why if it does not.
func (b *Backend) superseded(ctx context.Context, s *snapshot, why error) error {
	timer := time.NewTimer(b.cfg.WaitReady)
	defer timer.Stop()
	select {
	case <-s.changed:
		return nil
	case <-timer.C:
		return why
	case <-ctx.Done():
		return ctx.Err()
	}
}

// prepareRequest makes the engine's form of a request. The protocol takes valid UTF-8 only, and says so as if the engine had
// died.
func prepareRequest(req *backends.Request) (*pb.PrepareRequest, error) {
	switch {
	case req.Text != nil && !utf8.ValidString(*req.Text):
		return nil, notUTF8("prompt")
	case !utf8.ValidString(strings.Join(req.Stop, "")):
		return nil, notUTF8("stop")
	case req.Chat != nil:
		return &pb.PrepareRequest{Input: &pb.PrepareRequest_Chat{Chat: &pb.ChatInput{
			MessagesJson: req.Chat.Messages, EnableThinking: req.Chat.Thinking, TemplateKwargsJson: req.Chat.Kwargs,
		}}}, nil
	case req.Text != nil:
		return &pb.PrepareRequest{Input: &pb.PrepareRequest_Text{Text: *req.Text}}, nil
	case req.Tokens != nil:
		return &pb.PrepareRequest{Input: &pb.PrepareRequest_Tokens{Tokens: &pb.TokenInput{Ids: req.Tokens}}}, nil
	}
	return nil, &backends.Error{Kind: backends.KindInvalid, Code: "empty_prompt", Param: "prompt", Message: "the request has no prompt"}
}

func notUTF8(param string) error {
	return &backends.Error{
		Kind: backends.KindInvalid, Code: "invalid_value", Param: param, Message: param + " is not valid UTF-8", Hint: "convert it to UTF-8",
	}
}

// prepared cuts the answer to what the context has room for.
func prepared(req *backends.Request, res *pb.PrepareResponse, size int) *backends.Prepared {
	rest := size - len(res.Tokens)
	if req.MaxTokens > 0 {
		rest = min(rest, req.MaxTokens)
	}
	stops := append(append([]string{}, req.Stop...), res.Stops...)
	return &backends.Prepared{Request: req, Tokens: res.Tokens, MaxTokens: rest, Stops: stops, ChatFormat: res.ChatFormat}
}

// Generate implements [backends.Backend]. An engine that dies under it ends it with an error of KindLost. A call that has brought nothing
// at all is sent once more, to the next engine: its engine was most likely gone before, and the supervisor had yet to notice.
func (b *Backend) Generate(ctx context.Context, p *backends.Prepared, emit func(backends.Event) error) (*backends.Result, error) {
	req, err := generateRequest(p.Request.ID, p.Tokens, p.MaxTokens, &p.Request.Params)
	if err != nil {
		return nil, err
	}
	req.Stop, req.ChatFormat, req.IncludeStop, req.Delivered = p.Stops, p.ChatFormat, p.Request.IncludeStop, p.Delivered
	for try := 1; ; try++ {
		s, err := b.serving(ctx)
		if err != nil {
			return nil, err
		}
		res, begun, err := b.stream(ctx, s, req, emit)
		if begun || try == generateTries || !errors.Is(err, backends.ErrLost) {
			return res, err
		}
		if err := b.superseded(ctx, s, err); err != nil {
			return nil, err
		}
	}
}

// stream makes one call, and reports whether the engine has answered anything.
func (b *Backend) stream(ctx context.Context, s *snapshot, req *pb.GenerateRequest, emit func(backends.Event) error) (_ *backends.Result, begun bool, _ error) {
	b.running.Add(1)
	defer b.running.Add(-1)
	// The call's own context: whatever way this ends, the engine's worker is told.
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.client.Generate(call, req)
	if err != nil {
		return nil, false, b.callError(ctx, err)
	}
	for {
		res, err := stream.Recv()
		if err != nil {
			return nil, begun, b.callError(ctx, err)
		}
		begun = true
		if fin := res.GetFinished(); fin != nil {
			out, err := result(fin)
			return out, true, err
		}
		if err := emit(event(res)); err != nil {
			return nil, true, err
		}
	}
}

// generateRequest makes the engine's form of a prepared request.
func generateRequest(id string, tokens []int32, most int, params *sampler.Params) (*pb.GenerateRequest, error) {
	data, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("encode parameters: %w", err)
	}
	return &pb.GenerateRequest{RequestId: id, Tokens: tokens, MaxTokens: uint32(most), ParamsJson: data}, nil
}

// event reads a message that is not the last.
func event(res *pb.GenerateResponse) backends.Event {
	if s := res.GetStarted(); s != nil {
		return backends.Event{Started: &backends.Started{
			Worker: int(s.Worker), PromptTokens: int(s.PromptTokens), CachedTokens: int(s.CachedTokens),
			Content: int(s.ContentBytes), Reasoning: int(s.ReasoningBytes),
		}}
	}
	d := res.GetDelta()
	return backends.Event{Content: d.GetContent(), Reasoning: d.GetReasoning(), Tokens: d.GetTokens()}
}

// result reads the last message.
func result(fin *pb.Finished) (*backends.Result, error) {
	res := &backends.Result{Reason: fin.Reason, Usage: backends.Usage{
		PromptTokens: int(fin.PromptTokens), CompletionTokens: int(fin.CompletionTokens), CachedTokens: int(fin.CachedTokens),
	}}
	if err := json.Unmarshal(fin.StatsJson, &res.Stats); err != nil {
		return nil, fmt.Errorf("read stats: %w", err)
	}
	return res, nil
}

// callError says what the error of a call means: ctx's end, the engine's own words, or else a dead engine.
func (b *Backend) callError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if e := pb.FromStatus(err); e != nil {
		return e
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the answer has no end")
	}
	return &backends.Error{
		Kind: backends.KindLost, Code: "engine_lost", Err: err,
		Message: fmt.Sprintf("the engine of model %s ended while it ran the request", b.cfg.ID),
		Hint:    "the engine is being restarted; send the request again",
	}
}
