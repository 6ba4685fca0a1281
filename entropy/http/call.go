package http

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	stdhttp "net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"qr-gateway/entropy"
)

const (
	maxExcerpt = 200 // bytes of an answer that an error shows
	maxHold    = time.Hour
)

// call makes one call and reads its answer.
func (s *Source) call(ctx context.Context, c call) (answer, error) {
	limit := s.api.bodyLimit(c)
	res, err := s.fetch(ctx, s.cfg.Method, c.url, c.body, limit)
	if err != nil {
		return answer{}, err
	}
	if err := s.judge(res); err != nil {
		return answer{}, err
	}
	body := res.body
	if int64(len(body)) > limit {
		return answer{}, s.fail(entropy.KindProtocol, nil, fmt.Sprintf("the answer of %s is longer than %d bytes", s.host, limit))
	}
	a := answer{data: body}
	if !s.api.raw {
		a, err = s.api.read(make([]byte, 0, c.gets), s.masked(body), s.cfg, c)
	}
	if err != nil {
		return answer{}, s.fail(entropy.KindProtocol, err, "the answer of "+s.host+" is not what was asked for")
	}
	if len(a.data) != c.gets {
		return answer{}, s.fail(entropy.KindProtocol, nil, fmt.Sprintf("the answer of %s holds %d bytes where %d were asked for", s.host, len(a.data), c.gets))
	}
	a.data, a.sent = a.data[:c.n], res.sent
	return a, nil
}

// reply is an answer that was read.
type reply struct {
	status int
	header stdhttp.Header
	body   []byte
	sent   int // times that the request went out: again where a connection that was kept broke before the answer began
}

// fetch sends a request and reads its answer, of one that is longer than limit, packed or not, a byte more than that.
func (s *Source) fetch(ctx context.Context, method, url, text string, limit int64) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	var body io.Reader
	if text != "" {
		body = strings.NewReader(text)
	}
	var sent atomic.Int32
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent.Add(1) }})
	req, err := stdhttp.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return reply{}, s.fail(entropy.KindConfig, nil, "make request: url can't be used")
	}
	req.Header = s.header.Clone()
	res, err := s.client.Do(req)
	if err != nil {
		return reply{}, fmt.Errorf("send request: %w", err)
	}
	defer func() { _ = res.Body.Close() }() // was read, or is given up
	data, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err != nil {
		return reply{}, fmt.Errorf("read answer: %w", err)
	}
	return reply{res.StatusCode, res.Header, data, max(1, int(sent.Load())-hops(res))}, nil
}

// hops is how many redirects led to an answer.
func hops(res *stdhttp.Response) int {
	n := 0
	for r := res.Request.Response; r != nil; r = r.Request.Response {
		n++
	}
	return n
}

// judge tells by status and content type whether an answer can hold bytes.
func (s *Source) judge(res reply) error {
	body := res.body
	if e := s.judgeStatus(res); e != nil {
		return e
	}
	kind, _, err := mime.ParseMediaType(res.header.Get("Content-Type"))
	if res.header.Get("Content-Type") == "" {
		kind, err = "", nil
	}
	switch {
	case res.header.Get("Content-Encoding") != "":
		return s.fail(entropy.KindProtocol, nil, fmt.Sprintf("the answer of %s is packed as %.40q, which was not asked for", s.host, res.header.Get("Content-Encoding")))
	case res.header.Get("Age") != "" && res.header.Get("Age") != "0":
		return s.fail(entropy.KindProtocol, nil, fmt.Sprintf("the answer of %s comes from a cache on the way: its age is %.20q", s.host, res.header.Get("Age")))
	case s.wanted(kind, err):
		return nil
	case s.api.textQuota && !json.Valid(body): // so it throttles, without a Retry-After
		s.budget.usedUp(time.Now(), s.cfg.QuotaHold)
		return s.fail(entropy.KindQuota, nil, fmt.Sprintf("%s sent no JSON, as when it is asked too often: %s", s.host, s.excerpt(body)))
	}
	return s.fail(entropy.KindProtocol, nil, fmt.Sprintf("the answer of %s has content type %.80q: %s", s.host, res.header.Get("Content-Type"), s.excerpt(body)))
}

// wanted reports whether a content type is that of a good answer.
func (s *Source) wanted(kind string, err error) bool {
	if s.cfg.ContentType != "" {
		return kind == s.cfg.ContentType
	}
	if s.api.raw {
		return err == nil && (kind == "" || kind == "application/octet-stream" || kind == "binary/octet-stream" || kind == "application/binary")
	}
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}

func (s *Source) judgeStatus(res reply) error {
	status := res.status
	if status == stdhttp.StatusOK {
		return nil
	}
	message := fmt.Sprintf("%s answers %d %s: %s", s.host, status, stdhttp.StatusText(status), s.excerpt(res.body))
	switch {
	case status == stdhttp.StatusTooManyRequests:
		s.budget.usedUp(time.Now(), retryAfter(res.header.Get("Retry-After"), time.Now(), s.cfg.QuotaHold))
		return s.fail(entropy.KindQuota, nil, message)
	case status == stdhttp.StatusUnauthorized, status == stdhttp.StatusForbidden:
		e := s.fail(entropy.KindRefused, nil, message)
		e.Hint = "check the API key and what it allows"
		return e
	case status == stdhttp.StatusRequestTimeout, status == stdhttp.StatusNotFound, status >= 500:
		// 404 too: some say by it that their store is empty.
		return s.fail(entropy.KindTransport, nil, message)
	case status >= 400:
		return s.fail(entropy.KindRefused, nil, message)
	}
	return s.fail(entropy.KindProtocol, nil, message)
}

// retryAfter reads the header: seconds or a date.
func retryAfter(text string, now time.Time, otherwise time.Duration) time.Duration {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(time.Duration(n)*time.Second, maxHold)
	}
	if at, err := stdhttp.ParseTime(text); err == nil {
		return min(max(0, at.Sub(now)), maxHold)
	}
	return otherwise
}

// masked is an answer without the key, should it be in there: errors show parts of answers.
func (s *Source) masked(body []byte) []byte {
	if s.key == "" || !bytes.Contains(body, []byte(s.key)) {
		return body
	}
	return bytes.ReplaceAll(body, []byte(s.key), []byte("(key)"))
}

// excerpt shows the beginning of an answer.
func (s *Source) excerpt(body []byte) string {
	body = s.masked(body)
	return strconv.Quote(string(body[:min(len(body), maxExcerpt)]))
}

// probeOpen asks an OpenEntropy server about its sources.
func (s *Source) probeOpen(ctx context.Context, details map[string]string) error {
	own, done := s.until(ctx)
	defer done()
	res, err := s.fetch(own, stdhttp.MethodGet, with(s.cfg.URL, "sources", nil), "", 1<<20)
	if err == nil {
		err = s.judge(res)
	}
	if err != nil {
		return s.explain(ctx, own, err)
	}
	var list struct {
		Sources []struct {
			Name    string `json:"name"`
			Healthy bool   `json:"healthy"`
		} `json:"sources"`
	}
	if err := json.Unmarshal(res.body, &list); err != nil {
		return s.fail(entropy.KindProtocol, err, "read the list of sources of "+s.host)
	}
	var known []string
	for _, x := range list.Sources {
		known = append(known, x.Name)
		if x.Name == s.cfg.Source {
			details["healthy"] = strconv.FormatBool(x.Healthy)
			return nil
		}
	}
	details["sources"] = strings.Join(known, ", ")
	if s.cfg.Source == "" {
		return nil
	}
	return s.fail(entropy.KindConfig, errors.New("want one of "+strings.Join(known, ", ")), fmt.Sprintf("%s has no source %q", s.host, s.cfg.Source))
}
