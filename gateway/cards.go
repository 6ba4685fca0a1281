package gateway

import (
	"qr-gateway/backends"
	"qr-gateway/gateway/api"
)

// Card is how people are shown a model.
type Card struct {
	Name    string   // empty: the id
	Prompts []string // suggested for the beginning of a chat
	Aliases []string // other ids that clients may name the model by
}

// webInfo describes a model in Open WebUI's terms. It shows what stands here until somebody edits the model there.
type webInfo struct {
	Meta webMeta `json:"meta"`
}

type webMeta struct {
	Description  string          `json:"description,omitempty"`
	Capabilities map[string]bool `json:"capabilities"`
	Prompts      []webPrompt     `json:"suggestion_prompts,omitempty"`
	Tags         []webTag        `json:"tags"`
}

type webPrompt struct {
	Title   [2]string `json:"title"`
	Content string    `json:"content"`
}

type webTag struct {
	Name string `json:"name"`
}

// capabilities are what a text model behind this server can do. Usage makes Open WebUI ask for it, and show it; its own tools would make
// every prompt some 25 kB longer, and no tool is called.
func capabilities() map[string]bool {
	return map[string]bool{
		"usage": true, "status_updates": true, "citations": true, "file_context": true, "file_upload": true,
		"vision": false, "builtin_tools": false, "web_search": false, "image_generation": false, "code_interpreter": false, "terminal": false,
	}
}

func describeForWeb(i backends.Info, c Card) *webInfo {
	m := webMeta{Description: i.Description, Capabilities: capabilities(), Tags: []webTag{{"qr-gateway"}}}
	if i.Raw {
		delete(m.Capabilities, "vision") // the server may see: it is for whoever knows to say
	}
	for _, p := range c.Prompts {
		m.Prompts = append(m.Prompts, webPrompt{Title: halves(p), Content: p})
	}
	return &webInfo{Meta: m}
}

// halves splits a prompt into the two lines of a button.
func halves(prompt string) [2]string {
	const most = 32
	at := 0
	for i, r := range prompt {
		if r == ' ' && (i <= most || at == 0) {
			at = i
		}
	}
	if at == 0 || len(prompt) <= most {
		return [2]string{prompt, ""}
	}
	return [2]string{prompt[:at], prompt[at+1:]}
}

// taskModel is the list's entry of the alias of m for clients' own calls.
func taskModel(m model) model {
	m.ID, m.Name, m.Info = api.TaskModel(m.ID), m.Name+" (tasks)", nil
	return m
}
