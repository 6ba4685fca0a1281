package drill

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"
)

// chunk is what is read of a chunk, of a whole answer and of an error.
type chunk struct {
	Choices []struct {
		Delta, Message struct{ Content string }
		FinishReason   string `json:"finish_reason"`
	}
	Error *struct{ Code, Message string }
	QR    *struct {
		ContinuedAt []int `json:"continued_at"`
	}
}

// Ask sends a request to the gateway at url and reads its answer. Nothing may come for patience.
func Ask(ctx context.Context, client *http.Client, url string, r Request, start time.Time, patience time.Duration) Answer {
	a := &asked{Answer: Answer{Began: time.Since(start), Again: true}} // who reaches nobody tries again
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.silence = time.AfterFunc(patience, func() { cancel(errHung) })
	a.patience = patience
	defer a.silence.Stop()
	if r.Leave > 0 {
		defer time.AfterFunc(r.Leave, func() { cancel(errLeft) }).Stop()
	}
	a.end(ctx, a.ask(ctx, client, url, r))
	a.Ended = time.Since(start)
	return a.Answer
}

var (
	errHung = errors.New("nothing came")
	errLeft = errors.New("the client left")
	errCut  = errors.New("the connection ended, and the answer had not")
)

type asked struct {
	Answer
	silence  *time.Timer
	patience time.Duration
	done     bool // [DONE] came
}

// end decides how the answer ended, err being that of reading it.
func (a *asked) end(ctx context.Context, err error) {
	cause := context.Cause(ctx)
	switch {
	case a.Ending != "":
	case err == nil:
		a.Ending = Whole
	case errors.Is(cause, errLeft):
		a.Ending = Left
	case errors.Is(cause, errHung):
		a.Ending = Hung
	case a.Status == 0 && !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset"): // nobody listened
		a.Ending = Refused
	default:
		a.Ending = Broken
	}
	if err != nil && a.Message == "" {
		a.Message = err.Error()
	}
}

func (a *asked) ask(ctx context.Context, client *http.Client, url string, r Request) error {
	req, err := request(ctx, url, r)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	a.Status = res.StatusCode
	a.retry(res.Header)
	if r.Stream && res.StatusCode == http.StatusOK {
		return a.stream(res.Body)
	}
	return a.reply(res.Body)
}

func request(ctx context.Context, url string, r Request) (*http.Request, error) {
	fields := map[string]any{
		"model": r.Model, "max_tokens": r.Tokens, "stream": r.Stream, "messages": []any{map[string]any{"role": "user", "content": r.Prompt}},
	}
	maps.Copy(fields, r.Params)
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", r.ID)
	if r.Key != "" {
		req.Header.Set("Authorization", "Bearer "+r.Key)
	}
	return req, nil
}

// reply reads an answer or an error that comes as one.
func (a *asked) reply(body io.Reader) error {
	data, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("read reply: %w", err)
	}
	if err := a.take(data); err != nil {
		return err
	}
	if a.Status != http.StatusOK {
		a.Ending = Refused
	}
	return nil
}

// stream reads an answer in pieces.
func (a *asked) stream(body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		a.silence.Reset(a.patience)
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			a.done = true
			continue
		}
		if err := a.take([]byte(data)); err != nil {
			return err
		}
	}
	switch {
	case lines.Err() != nil:
		return fmt.Errorf("read stream: %w", lines.Err())
	case a.Ending == "" && !a.done:
		return errCut
	}
	return nil
}

// take reads one chunk, one answer or one error.
func (a *asked) take(data []byte) error {
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("read %q: %w", data, err)
	}
	if c.Error != nil {
		a.Ends++
		a.Ending, a.Code, a.Message = Failed, c.Error.Code, c.Error.Message
	}
	if c.QR != nil {
		a.Continued = max(a.Continued, len(c.QR.ContinuedAt))
	}
	for _, choice := range c.Choices {
		a.Text += choice.Delta.Content + choice.Message.Content
		if choice.FinishReason != "" {
			a.Ends++
		}
	}
	return nil
}
