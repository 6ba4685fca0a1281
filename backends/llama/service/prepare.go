package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"qr-gateway/backends"
	"qr-gateway/backends/llama/engine"
	pb "qr-gateway/backends/llama/enginepb"
)

// chatFormat is what Generate needs to know about how a chat prompt was made; opaque to the gateway.
type chatFormat struct {
	Thinking bool    `json:"thinking,omitempty"` // the answer begins with it, or may
	Split    []byte  `json:"split,omitempty"`    // the engine's own, if the text is to be split
	Allow    []int32 `json:"allow,omitempty"`    // control tokens that the answer is built with
}

// Prepare implements the protocol.
func (s *Service) Prepare(_ context.Context, req *pb.PrepareRequest) (*pb.PrepareResponse, error) {
	m, err := s.ready()
	if err != nil {
		return nil, pb.ToStatus(err)
	}
	res, err := m.prepare(req)
	if err != nil {
		return nil, pb.ToStatus(err)
	}
	return res, nil
}

func (m *loaded) prepare(req *pb.PrepareRequest) (res *pb.PrepareResponse, err error) {
	param := "prompt"
	switch in := req.Input.(type) {
	case *pb.PrepareRequest_Chat:
		param = "messages"
		res, err = m.prepareChat(in.Chat)
	case *pb.PrepareRequest_Text:
		res, err = m.prepareText(in.Text)
	case *pb.PrepareRequest_Tokens:
		res, err = m.prepareTokens(in.Tokens.GetIds())
	default:
		err = invalid("prompt", "the request has no prompt")
	}
	if err != nil {
		return nil, err
	}
	return res, m.checkLength(res.Tokens, param)
}

// checkLength refuses a prompt that leaves no room for a token.
func (m *loaded) checkLength(tokens []int32, param string) error {
	switch {
	case len(tokens) == 0:
		return &backends.Error{Kind: backends.KindInvalid, Code: "empty_prompt", Param: param, Message: "the prompt has no tokens"}
	case len(tokens) >= m.context:
		e := backends.TooLong(len(tokens), m.context)
		e.Param = param
		return e
	}
	return nil
}

func (m *loaded) prepareChat(in *pb.ChatInput) (*pb.PrepareResponse, error) {
	chat, err := m.model.ApplyTemplate(engine.ChatInput{
		Messages: in.MessagesJson, Kwargs: in.TemplateKwargsJson,
		EnableThinking: in.EnableThinking, AddGenerationPrompt: !in.NoGenerationPrompt,
	})
	if err != nil {
		return nil, chatError(err)
	}
	tokens, err := m.tokenize(chat.Prompt, chat.AddSpecial, "messages")
	if err != nil {
		return nil, err
	}
	res := &pb.PrepareResponse{Tokens: tokens, Stops: chat.Stops, Prompt: chat.Prompt}
	f := chatFormat{Thinking: in.EnableThinking || opensThinking(chat.Prompt), Allow: m.preserved(chat.Preserved)}
	if chat.SplitsText {
		f.Split = chat.Format
	}
	if f.Thinking || f.Split != nil || f.Allow != nil {
		if res.ChatFormat, err = json.Marshal(f); err != nil {
			return nil, fmt.Errorf("encode chat format: %w", err)
		}
	}
	return res, nil
}

// preserved are the ids of the tokens without which answers in this format can't be written. The marks of thinking are not
// among them: whether a model may think is the request's to say.
func (m *loaded) preserved(pieces []string) (ids []int32) {
	for _, piece := range pieces {
		tokens, err := m.model.Tokenize(piece, false, true)
		if err == nil && len(tokens) == 1 && m.language.Think.Has(tokens[0]) && piece != "<think>" && piece != "</think>" {
			ids = append(ids, tokens[0])
		}
	}
	return ids
}

// opensThinking reports whether the prompt ends within a block of thinking, as some templates have it whatever they are told. Were
// its end banned then, the whole answer would be thought.
func opensThinking(prompt string) bool {
	prompt = strings.TrimRight(prompt, " \r\n\t")
	for _, mark := range []string{"<think>", "[THINK]", "<|START_THINKING|>"} {
		if strings.HasSuffix(prompt, mark) {
			return true
		}
	}
	return false
}

// chatError gives the template's own words to the client.
func chatError(err error) error {
	var t *engine.TemplateError
	switch {
	case errors.As(err, &t):
		return &backends.Error{
			Kind: backends.KindInvalid, Code: "template_error", Param: "messages", Err: err,
			Message: "the model's chat template refused the messages: " + t.Message,
		}
	case errors.Is(err, engine.ErrNoTemplate):
		return &backends.Error{
			Kind: backends.KindInvalid, Code: "no_chat_template", Param: "messages", Err: err,
			Message: "this model has no chat template", Hint: "use /v1/completions",
		}
	case errors.Is(err, engine.ErrBadInput):
		return &backends.Error{Kind: backends.KindInvalid, Code: "invalid_messages", Param: "messages", Message: err.Error(), Err: err}
	}
	return fmt.Errorf("apply chat template: %w", err)
}

func (m *loaded) prepareText(text string) (*pb.PrepareResponse, error) {
	tokens, err := m.tokenize(text, true, "prompt")
	return &pb.PrepareResponse{Tokens: tokens, Prompt: text}, err
}

// tokenize reads control tokens spelt out in text as such. param is the field of the request that the text comes from.
func (m *loaded) tokenize(text string, addSpecial bool, param string) ([]int32, error) {
	if least := m.language.Vocab.MinTokens(len(text)); least >= m.context {
		e := backends.TooLong(least, m.context)
		e.Param, e.Message = param, strings.Replace(e.Message, "has", "has at least", 1)
		return nil, e
	}
	tokens, err := m.model.Tokenize(text, addSpecial, true)
	switch {
	case errors.Is(err, engine.ErrNoTokenizer):
		return nil, &backends.Error{
			Kind: backends.KindInvalid, Code: "no_tokenizer", Param: param, Err: err,
			Message: "this model has no tokenizer", Hint: "send the prompt as token ids",
		}
	case errors.Is(err, engine.ErrBadInput):
		return nil, &backends.Error{Kind: backends.KindInvalid, Code: "invalid_value", Param: param, Message: err.Error(), Err: err}
	case err != nil:
		return nil, fmt.Errorf("tokenise prompt: %w", err)
	}
	return tokens, nil
}

func (m *loaded) prepareTokens(ids []int32) (*pb.PrepareResponse, error) {
	return &pb.PrepareResponse{Tokens: ids}, m.checkTokens(ids)
}

// checkTokens refuses ids that the model does not have.
func (m *loaded) checkTokens(ids []int32) error {
	n := m.language.Vocab.Len()
	for i, id := range ids {
		if id < 0 || int(id) >= n {
			return &backends.Error{
				Kind: backends.KindInvalid, Code: "invalid_token", Param: "prompt",
				Message: fmt.Sprintf("token %d of the prompt is %d; this model's ids go from 0 to %d", i, id, n-1),
			}
		}
	}
	return nil
}

// Tokenize implements the protocol.
func (s *Service) Tokenize(_ context.Context, req *pb.TokenizeRequest) (*pb.TokenizeResponse, error) {
	m, err := s.ready()
	if err != nil {
		return nil, pb.ToStatus(err)
	}
	tokens, err := m.model.Tokenize(req.Text, req.AddSpecial, req.ParseSpecial)
	if err != nil {
		return nil, pb.ToStatus(fmt.Errorf("tokenise text: %w", err))
	}
	return &pb.TokenizeResponse{Tokens: tokens}, nil
}

// Detokenize implements the protocol.
func (s *Service) Detokenize(_ context.Context, req *pb.DetokenizeRequest) (*pb.DetokenizeResponse, error) {
	m, err := s.ready()
	if err == nil {
		err = m.checkTokens(req.Tokens)
	}
	if err != nil {
		return nil, pb.ToStatus(err)
	}
	return &pb.DetokenizeResponse{Text: m.language.Vocab.Detokenize(req.Tokens, req.Special)}, nil
}
