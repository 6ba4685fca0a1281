package http

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"

	"qr-gateway/entropy"
)

// api is an interface that is known by name.
type api struct {
	name      string
	url       string // where the service is; empty: it must be told
	general   bool   // it is described by the configuration
	raw       bool   // the answer is the bytes, else JSON
	textQuota bool   // says by status 200 and plain text that it is asked too often
	header    string // that a key goes into
	needsKey  bool
	maxDraw   int // bytes of one call
	perMinute int // calls; 0: no limit is known

	// plan says what to ask for n bytes of one call.
	plan func(cfg Config, n int) call
	// read takes n bytes from an answer; it has more than n only as far as the plan says.
	read func(dst []byte, body []byte, cfg Config, c call) (answer, error)
}

// call is one request.
type call struct {
	url  string
	body string
	n    int // bytes that are needed
	gets int // bytes that are asked for; the rest is dropped
	size int // bytes of one text of the answer; 0: it is not said
}

// answer is what an interface says.
type answer struct {
	data   []byte
	device string
	sent   int // times that it was asked for
}

// apis is the table of interfaces, one line each.
func apis() []api {
	return []api{
		{name: "anu", url: "https://api.quantumnumbers.anu.edu.au", header: "X-Api-Key", needsKey: true, textQuota: true, maxDraw: anuItems * anuWords * 2, plan: planANU, read: readANU},
		{name: "anu_legacy", url: "https://qrng.anu.edu.au/API/jsonI.php", header: "X-Api-Key", textQuota: true, maxDraw: anuItems * anuItems, perMinute: 1, plan: planLegacy, read: readANU},
		{name: "openentropy", url: "http://127.0.0.1:8042", header: "Authorization", maxDraw: 65536, plan: planOpen, read: readOpen},
		{name: "quantis", header: "Authorization", raw: true, maxDraw: maxDraw, plan: planQuantis},
		{name: "lfd", url: "https://lfdr.de", header: "Authorization", raw: true, maxDraw: maxDraw, plan: planLfD},
		{name: "bytes", general: true, header: "Authorization", raw: true, maxDraw: maxDraw, plan: planGeneral},
		{name: "json", general: true, header: "Authorization", maxDraw: maxDraw, plan: planGeneral, read: readGeneral},
	}
}

func find(name string) (api, bool) {
	for _, a := range apis() {
		if a.name == name {
			return a, true
		}
	}
	return api{}, false
}

func names() []string {
	var out []string
	for _, a := range apis() {
		out = append(out, a.name)
	}
	return out
}

// class is the freshness of an interface: a remote service can't tell.
func (a api) class(cfg Config) entropy.Class {
	switch {
	case cfg.Class != "":
		return cfg.Class
	case a.name == "openentropy" && cfg.measures():
		return entropy.ClassJIT
	case a.name == "openentropy":
		return entropy.ClassPool
	}
	return entropy.ClassUnknown
}

// with adds a path and a query to the URL of a service.
func with(base, path string, query url.Values) string {
	u, err := url.Parse(base)
	if err != nil {
		return base // was checked
	}
	u = u.JoinPath(path)
	q := u.Query()
	for k, v := range query {
		q[k] = v
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// The ANU services count items, and in texts of hexadecimal digits words of an item.
const (
	anuItems = 1024
	anuWords = 10 // of two bytes
)

func planANU(cfg Config, n int) call {
	query := url.Values{"length": {strconv.Itoa(n)}, "type": {"uint8"}}
	c := call{n: n, gets: n}
	if n > anuItems {
		c.size = 2 * anuWords
		items := (n + c.size - 1) / c.size
		c.gets = items * c.size
		query = url.Values{"length": {strconv.Itoa(items)}, "type": {"hex16"}, "size": {strconv.Itoa(anuWords)}}
	}
	c.url = with(cfg.URL, "", query)
	return c
}

func planLegacy(cfg Config, n int) call {
	query := url.Values{"length": {strconv.Itoa(n)}, "type": {"uint8"}}
	c := call{n: n, gets: n}
	if n > anuItems {
		items := (n + anuItems - 1) / anuItems
		c.size = (n + items - 1) / items // bytes: here a word has one
		c.gets = items * c.size
		query = url.Values{"length": {strconv.Itoa(items)}, "type": {"hex16"}, "size": {strconv.Itoa(c.size)}}
	}
	c.url = with(cfg.URL, "", query)
	return c
}

func readANU(dst, body []byte, _ Config, c call) (answer, error) {
	var a struct {
		Success *bool           `json:"success"`
		Length  *int            `json:"length"`
		Data    json.RawMessage `json:"data"`
		Message string          `json:"message"`
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return answer{}, fmt.Errorf("read JSON: %w", err)
	}
	items, encoding := c.gets, encodingUint8
	if c.size > 0 {
		items, encoding = c.gets/c.size, encodingHex
	}
	switch {
	case a.Success == nil || !*a.Success:
		return answer{}, fmt.Errorf("it says no success: %.200s", a.Message)
	case a.Length == nil || *a.Length != items:
		return answer{}, fmt.Errorf("its length is not the %d that were asked for", items)
	}
	if c.size > 0 {
		if err := sameSize(a.Data, items, c.size); err != nil {
			return answer{}, err
		}
	}
	data, err := decode(dst, a.Data, encoding, c.gets)
	return answer{data: data}, err
}

// sameSize checks that value is a list of texts of hexadecimal digits, all of the same size.
func sameSize(value json.RawMessage, items, size int) error {
	var texts []string
	if err := json.Unmarshal(value, &texts); err != nil {
		return errors.New("its data is no list of texts")
	}
	if len(texts) != items {
		return fmt.Errorf("it has %d texts where %d were asked for", len(texts), items)
	}
	for _, t := range texts {
		if len(t) != 2*size {
			return fmt.Errorf("a text of it has %d digits, not %d", len(t), 2*size)
		}
	}
	return nil
}

func planOpen(cfg Config, n int) call {
	query := url.Values{"length": {strconv.Itoa(n)}, "type": {"uint8"}, "conditioning": {cfg.Conditioning}}
	if cfg.Conditioning == "raw" {
		query.Set("raw", "true") // for versions that know no conditioning
	}
	if cfg.Source != "" {
		query.Set("source", cfg.Source)
	}
	return call{url: with(cfg.URL, "api/v1/random", query), n: n, gets: n}
}

// readOpen: for uint8 the length is the same whether it counts bytes, as from version 0.12, or values.
func readOpen(dst, body []byte, cfg Config, c call) (answer, error) {
	var a struct {
		Type        string          `json:"type"`
		Success     *bool           `json:"success"`
		Length      *int            `json:"length"`
		Count       *int            `json:"value_count"`
		Data        json.RawMessage `json:"data"`
		Conditioned *bool           `json:"conditioned"`
		Source      string          `json:"source"`
		Error       string          `json:"error"`
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return answer{}, fmt.Errorf("read JSON: %w", err)
	}
	conditioned := cfg.Conditioning != "raw"
	switch {
	case a.Success == nil || !*a.Success || a.Error != "":
		return answer{}, fmt.Errorf("it says no success: %.200s", a.Error)
	case a.Conditioned == nil || *a.Conditioned != conditioned && conditioned:
		return answer{}, errors.New("it is not conditioned, or does not say so")
	case *a.Conditioned != conditioned:
		return answer{}, errors.New("it is conditioned where raw bytes were asked for; start the server with --allow-raw")
	case a.Source != cfg.Source:
		return answer{}, fmt.Errorf("it is of source %.100q, not %q", a.Source, cfg.Source)
	case a.Type != "uint8" || a.Length == nil || *a.Length != c.n || a.Count != nil && *a.Count != c.n:
		return answer{}, fmt.Errorf("it is not of type uint8 and length %d", c.n)
	case len(a.Data) == 0 || a.Data[0] != '[':
		return answer{}, errors.New("its data is no list")
	}
	data, err := decode(dst, a.Data, encodingUint8, c.n)
	return answer{data: data, device: a.Source}, err
}

func planQuantis(cfg Config, n int) call {
	return call{url: with(cfg.URL, "api/2.0/streambytes", url.Values{"size": {strconv.Itoa(n)}}), n: n, gets: n}
}

func planLfD(cfg Config, n int) call {
	return call{url: with(cfg.URL, "qrng_api/qrng", url.Values{"length": {strconv.Itoa(n)}, "format": {"BINARY"}}), n: n, gets: n}
}

// fill puts the numbers into a template.
func fill(text string, n, count int) string {
	return strings.NewReplacer("{bytes}", strconv.Itoa(n), "{count}", strconv.Itoa(count)).Replace(text)
}

func holdsCount(text string) bool {
	return strings.Contains(text, "{bytes}") || strings.Contains(text, "{count}")
}

func planGeneral(cfg Config, n int) call {
	count := (n + cfg.Unit - 1) / cfg.Unit
	gets := count * cfg.Unit
	return call{url: fill(cfg.URL, gets, count), body: fill(cfg.Body, gets, count), n: n, gets: gets}
}

func readGeneral(dst, body []byte, cfg Config, c call) (answer, error) {
	if !json.Valid(body) {
		return answer{}, errors.New("it is no JSON")
	}
	if cfg.Success != "" {
		err := walk(body, cfg.Success, func(value json.RawMessage) error {
			if string(value) != "true" {
				return fmt.Errorf("its %s is %.50s, not true", cfg.Success, value)
			}
			return nil
		})
		if err != nil {
			return answer{}, err
		}
	}
	data := dst
	err := walk(body, cfg.Field, func(value json.RawMessage) error {
		var err error
		data, err = decode(data, value, cfg.Encoding, c.gets)
		return err
	})
	return answer{data: data}, err
}

// bodyLimit is what an answer may have: JSON takes up to seven characters for a byte.
func (a api) bodyLimit(c call) int64 {
	if a.raw {
		return int64(c.gets) + 1
	}
	return int64(min(c.gets, math.MaxInt32/64))*64 + 64<<10
}

// limit is the most bytes of one call.
func (a api) limit(cfg Config) int { return min(cmp.Or(cfg.MaxDraw, a.maxDraw), a.maxDraw) }
