package redis

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"qr-gateway/gateway/queue"
)

// What scripts answer comes as lists of texts, since their numbers would lose what is behind the point.

func list(reply any) []any {
	l, _ := reply.([]any)
	return l
}

func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	default:
		return ""
	}
}

func number(v any) int64 {
	n, err := strconv.ParseInt(text(v), 10, 64)
	if err == nil {
		return n
	}
	f, _ := strconv.ParseFloat(text(v), 64) // a text that is no number is 0
	return int64(f)
}

func micros(v any) time.Duration { return time.Duration(number(v)) * time.Microsecond }

// news is a status with its revision: a higher one is newer.
type news struct {
	id       string
	revision int64
	queue.Status
}

// readNews reads id, revision, state, epoch, position, wait, reason.
func readNews(v []any) (news, error) {
	if len(v) != 7 {
		return news{}, errors.New("a status is not whole")
	}
	return news{id: text(v[0]), revision: number(v[1]), Status: queue.Status{
		State: queue.State(text(v[2])), Epoch: number(v[3]), Position: int(number(v[4])), Wait: micros(v[5]), Reason: shown(text(v[6])),
	}}, nil
}

// readPrefixes reads hexadecimal numbers: a script's own hold 53 bits only.
func readPrefixes(s string) []uint64 {
	if s == "" {
		return nil
	}
	var out []uint64
	for word := range strings.SplitSeq(s, ",") {
		h, err := strconv.ParseUint(word, 16, 64)
		if err != nil {
			return nil // only a preference is lost
		}
		out = append(out, h)
	}
	return out
}
