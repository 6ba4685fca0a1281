//go:build llama && cgo

package engine

/*
#include <stdlib.h>
#include "qr.h"
*/
import "C"

import (
	"encoding/json"
	"fmt"
	"unsafe"
)

// ApplyTemplate renders a conversation with the model's chat template. It returns a *TemplateError when the template
// itself refuses the conversation, and ErrBadInput for messages that can't be read.
func (m *Model) ApplyTemplate(in ChatInput) (ChatPrompt, error) {
	if !m.info.HasTemplate {
		return ChatPrompt{}, fmt.Errorf("apply chat template: %w", ErrNoTemplate)
	}
	if err := in.validate(); err != nil {
		return ChatPrompt{}, err
	}
	var out ChatPrompt
	err := m.use(func(h *C.qr_model) (err error) {
		out, err = applyHandle(h, in)
		return err
	})
	return out, err
}

func applyHandle(h *C.qr_model, in ChatInput) (ChatPrompt, error) {
	messages, kwargs := C.CBytes(in.Messages), C.CBytes(in.Kwargs)
	defer C.free(messages)
	defer C.free(kwargs)
	c := C.struct_qr_chat_input{
		messages: (*C.char)(messages), messages_len: C.size_t(len(in.Messages)),
		kwargs: (*C.char)(kwargs), kwargs_len: C.size_t(len(in.Kwargs)),
		enable_thinking: flag(in.EnableThinking), add_generation_prompt: flag(in.AddGenerationPrompt),
	}
	var text errText
	buf, n := text.buf()
	var got C.struct_qr_chat_prompt
	if code := C.qr_chat_apply(h, &c, &got, buf, n); code != C.QR_OK {
		return ChatPrompt{}, applyError(code, text.String())
	}
	defer C.qr_chat_prompt_free(&got)
	out := ChatPrompt{
		Prompt: goText(got.prompt, got.prompt_len), Format: []byte(goText(got.format, got.format_len)),
		SplitsText: got.splits != 0, AddSpecial: got.add_special != 0,
	}
	if err := json.Unmarshal([]byte(goText(got.stops, got.stops_len)), &out.Stops); err != nil {
		return ChatPrompt{}, fmt.Errorf("read stop strings: %w", err)
	}
	var format struct{ Preserved []string }
	if err := json.Unmarshal(out.Format, &format); err != nil {
		return ChatPrompt{}, fmt.Errorf("read chat format: %w", err)
	}
	out.Preserved = format.Preserved
	return out, nil
}

func applyError(code C.int32_t, text string) error {
	switch code {
	case C.QR_TEMPLATE:
		return &TemplateError{Message: text}
	case C.QR_BAD_ARGUMENT:
		return fmt.Errorf("read chat: %w: %s", ErrBadInput, text)
	default:
		return codeError("apply chat template", code, text)
	}
}

// ParseChat reads an answer, or as much of it as there is, by the format that ApplyTemplate gave. With partial set, text
// that may yet turn out to be a tag is held back.
func (m *Model) ParseChat(format []byte, text string, partial bool) (ChatMessage, error) {
	var out ChatMessage
	err := m.use(func(h *C.qr_model) (err error) {
		out, err = parse(h, unsafe.String(unsafe.SliceData(format), len(format)), text, partial)
		return err
	})
	return out, err
}

func parse(h *C.qr_model, format, text string, partial bool) (ChatMessage, error) {
	var e errText
	buf, n := e.buf()
	f, flen := bytesOf(format)
	t, tlen := bytesOf(text)
	var got C.struct_qr_chat_message
	if code := C.qr_chat_parse(h, f, flen, t, tlen, flag(partial), &got, buf, n); code != C.QR_OK {
		return ChatMessage{}, codeError("parse answer", code, e.String())
	}
	defer C.qr_chat_message_free(&got)
	return ChatMessage{Content: goText(got.content, got.content_len), Reasoning: goText(got.reasoning, got.reasoning_len)}, nil
}
