package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// message is one turn as the backends get it: a known role and content that is one string, or null beside tool calls.
type message struct {
	Role             string          `json:"role"`
	Content          *string         `json:"content"`
	Name             string          `json:"name,omitempty"`
	ReasoningContent string          `json:"reasoning_content,omitempty"`
	ToolCalls        json.RawMessage `json:"tool_calls,omitempty"`
	ToolCallID       string          `json:"tool_call_id,omitempty"`
}

// messages checks the conversation and writes it anew, so that backends see only what was checked.
func (o object) messages() (json.RawMessage, error) {
	items, ok, err := o.list("messages")
	if err != nil {
		return nil, err
	}
	if !ok || len(items) == 0 {
		return nil, Invalid("messages", "messages is empty; send at least one, e.g. {\"role\": \"user\", \"content\": \"Hello\"}")
	}
	out := make([]message, len(items))
	for i, item := range items {
		if err := out[i].read(fmt.Sprintf("messages[%d]", i), item); err != nil {
			return nil, err
		}
	}
	return encode(out)
}

func (m *message) read(path string, raw json.RawMessage) error {
	var fields object
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return wrongType(path, "an object", raw)
	}
	if err := m.readRole(path, fields); err != nil {
		return err
	}
	if err := m.readToolFields(path, fields); err != nil {
		return err
	}
	if err := m.readContent(path+".content", fields); err != nil {
		return err
	}
	return m.readTexts(path, fields)
}

func (m *message) readRole(path string, fields object) error {
	role, ok, err := fields.text("role")
	if err != nil {
		return under(path, err)
	}
	if !ok {
		return Invalid(path+".role", "%s.role is missing; it takes system, developer, user, assistant or tool", path)
	}
	switch role {
	case "system", "user", "assistant", "tool":
		m.Role = role
	case "developer":
		m.Role = "system"
	default:
		return Invalid(path+".role", "%s.role is %q; it takes system, developer, user, assistant or tool", path, quote(role))
	}
	return nil
}

func (m *message) readTexts(path string, fields object) error {
	var err error
	if m.Name, _, err = fields.text("name"); err != nil {
		return under(path, err)
	}
	if m.Role != "assistant" {
		return nil
	}
	if m.ReasoningContent, _, err = fields.text("reasoning_content"); err != nil {
		return under(path, err)
	}
	return nil
}

func (m *message) readToolFields(path string, fields object) error {
	if m.Role == "tool" {
		id, ok, err := fields.text("tool_call_id")
		if err != nil {
			return under(path, err)
		}
		if !ok {
			return Invalid(path+".tool_call_id", "%s.tool_call_id is missing; a tool message says which call it answers", path)
		}
		m.ToolCallID = id
	}
	if m.Role != "assistant" {
		return nil
	}
	calls, _, err := fields.list("tool_calls")
	if err != nil {
		return under(path, err)
	}
	for i, c := range calls {
		if kindOf(c) != "object" {
			return wrongType(fmt.Sprintf("%s.tool_calls[%d]", path, i), "an object", c)
		}
	}
	if len(calls) > 0 {
		m.ToolCalls = fields["tool_calls"]
	}
	return nil
}

func (m *message) readContent(path string, fields object) error {
	raw, ok := fields.get("content")
	if !ok {
		return m.noContent(path)
	}
	var text string
	var err error
	switch kindOf(raw) {
	case "string":
		err = json.Unmarshal(raw, &text)
	case "list":
		text, err = joinParts(path, raw)
	default:
		err = wrongType(path, "a string or a list of text parts", raw)
	}
	m.Content = &text
	return err
}

func (m *message) noContent(path string) error {
	if m.Role != "assistant" {
		return Invalid(path, "%s is missing; only an assistant message may go without", path)
	}
	if m.ToolCalls == nil {
		m.Content = new(string)
	}
	return nil
}

// joinParts joins text parts by a line break, as llama.cpp and vLLM do for templates that know strings only.
func joinParts(path string, raw json.RawMessage) (string, error) {
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", wrongType(path, "a string or a list of text parts", raw)
	}
	if len(parts) == 0 {
		return "", Invalid(path, "%s is an empty list; send a string or text parts", path)
	}
	texts := make([]string, len(parts))
	for i, part := range parts {
		var err error
		if texts[i], err = partText(fmt.Sprintf("%s[%d]", path, i), part); err != nil {
			return "", err
		}
	}
	return strings.Join(texts, "\n"), nil
}

func partText(path string, raw json.RawMessage) (string, error) {
	var part object
	if err := json.Unmarshal(raw, &part); err != nil || part == nil {
		return "", wrongType(path, "an object such as {\"type\": \"text\", \"text\": \"...\"}", raw)
	}
	kind, _, err := part.text("type")
	if err != nil {
		return "", under(path, err)
	}
	if kind != "text" {
		return "", unsupported(path+".type", "%s.type is %q; the models served here read text only", path, quote(kind))
	}
	text, ok, err := part.text("text")
	if err != nil {
		return "", under(path, err)
	}
	if !ok {
		return "", Invalid(path+".text", "%s.text is missing", path)
	}
	return text, nil
}

// under puts the path of the object before the field that an error names.
func under(path string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	out := *e
	out.Param, out.Message = path+"."+e.Param, path+"."+e.Message
	return &out
}

// encode writes JSON for a template, in which < and & have to stay as they are.
func encode(v any) (json.RawMessage, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode template input: %w", err)
	}
	return bytes.TrimSpace(buf.Bytes()), nil
}
