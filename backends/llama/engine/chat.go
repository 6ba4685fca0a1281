package engine

import (
	"encoding/json"
	"fmt"

	"qr-gateway/backends/nesting"
)

// ChatInput is a conversation for the model's chat template.
type ChatInput struct {
	Messages            json.RawMessage // array of messages in OpenAI's form
	Kwargs              json.RawMessage // object of further template arguments, or nil; its enable_thinking wins
	EnableThinking      bool
	AddGenerationPrompt bool // end the prompt where the assistant begins
}

// ChatPrompt is a rendered conversation.
type ChatPrompt struct {
	Prompt string
	Stops  []string // strings that end the answer besides EOG tokens
	Format []byte   // opaque: what ParseChat needs to read the answer
	// SplitsText is false when the answer's text is its content as it stands, so that ParseChat has nothing to do.
	SplitsText bool
	// Preserved are control tokens that the answer is built with in this format: banning them would break it.
	Preserved  []string
	AddSpecial bool // tokenise Prompt with addSpecial; a BOS that the template wrote itself is not doubled
}

// ChatMessage is an answer, read.
type ChatMessage struct {
	Content   string
	Reasoning string
}

// maxChatDepth bounds the nesting of JSON handed to code that walks it recursively.
const maxChatDepth = 64

func (in ChatInput) validate() error {
	if len(in.Messages) == 0 {
		return fmt.Errorf("read chat: no messages: %w", ErrBadInput)
	}
	if nesting.Deeper(in.Messages, maxChatDepth) >= 0 || nesting.Deeper(in.Kwargs, maxChatDepth) >= 0 {
		return fmt.Errorf("read chat: JSON nested deeper than %d: %w", maxChatDepth, ErrBadInput)
	}
	return nil
}
