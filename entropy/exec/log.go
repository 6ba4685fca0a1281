package exec

import (
	"bufio"
	"io"
	"log/slog"
	"strings"
	"time"
)

const (
	maxLine    = 4 << 10          // bytes of a line; the rest is cut
	maxLines   = 100              // logged in one window
	lineWindow = 10 * time.Second // what comes too fast is counted
)

// forward logs what a program writes to standard error, line by line, and returns the last of them when it ends.
func forward(stderr io.Reader, log *slog.Logger) (last string) {
	r := bufio.NewReaderSize(stderr, maxLine)
	meter := lineMeter{begun: time.Now()}
	for {
		line, cut, err := r.ReadLine()
		text := strings.TrimSpace(strings.ToValidUTF8(string(line), "?"))
		if text != "" {
			last = text
			if meter.take(time.Now(), log) {
				log.Info("program says", "line", text)
			}
		}
		for cut && err == nil {
			_, cut, err = r.ReadLine()
		}
		if err != nil {
			meter.tell(log)
			return last
		}
	}
}

// lineMeter bounds the lines of a window.
type lineMeter struct {
	begun   time.Time
	lines   int
	skipped int
}

func (m *lineMeter) take(now time.Time, log *slog.Logger) bool {
	if now.Sub(m.begun) >= lineWindow {
		m.tell(log)
		*m = lineMeter{begun: now}
	}
	m.lines++
	if m.lines > maxLines {
		m.skipped++
		return false
	}
	return true
}

func (m *lineMeter) tell(log *slog.Logger) {
	if m.skipped > 0 {
		log.Warn("left out lines of a program that says too much", "lines", m.skipped)
	}
}
