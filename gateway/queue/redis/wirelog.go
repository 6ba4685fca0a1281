package redis

import (
	"context"
	"fmt"
	"log/slog"

	client "github.com/redis/go-redis/v9"
)

// lines takes what the driver has to say.
type lines struct{ log *slog.Logger }

func (l lines) Printf(ctx context.Context, format string, args ...any) {
	l.log.DebugContext(ctx, "redis driver", "message", fmt.Sprintf(format, args...))
}

// LogTo sends what the driver itself has to say to log, at the level debug: what matters of it the queue's own errors say. It is
// for the whole process; call it once, before [Open].
func LogTo(log *slog.Logger) { client.SetLogger(lines{log}) }
