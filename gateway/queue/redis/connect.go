package redis

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	client "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Schemes of a URL beside those that go-redis knows.
const (
	sentinelScheme = "-sentinel://"
	clusterScheme  = "-cluster://"
)

// connect makes a client. It also returns where that is, without the password.
func connect(cfg Config) (client.UniversalClient, string, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, "", errors.New("read the address of Redis: it is not a URL; write redis://host:port/0") // the URL may hold a password
	}
	where := u.Redacted()
	address := cfg.URL
	db, err := dial(address, cfg)
	if err != nil {
		return nil, where, fmt.Errorf("read the address of Redis %s: %s", where, hide(err, u))
	}
	return db, where, nil
}

func dial(address string, cfg Config) (client.UniversalClient, error) {
	switch {
	case strings.Contains(address, sentinelScheme):
		o, err := client.ParseFailoverURL(strings.Replace(address, sentinelScheme, "://", 1))
		if err != nil {
			return nil, err
		}
		if o.MasterName == "" {
			return nil, errors.New("it lacks the name of the master: ?master_name=NAME")
		}
		o.Password = or(cfg.Password, o.Password)
		o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = retries, 1, true
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = cfg.Timeout, cfg.Timeout, cfg.Timeout
		return client.NewFailoverClient(o), nil
	case strings.Contains(address, clusterScheme):
		o, err := client.ParseClusterURL(strings.Replace(address, clusterScheme, "://", 1))
		if err != nil {
			return nil, err
		}
		o.Password = or(cfg.Password, o.Password)
		o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = retries, 1, true
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = cfg.Timeout, cfg.Timeout, cfg.Timeout
		o.MaintNotificationsConfig = quiet()
		return client.NewClusterClient(o), nil
	default:
		o, err := client.ParseURL(address)
		if err != nil {
			return nil, err
		}
		o.Password = or(cfg.Password, o.Password)
		o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = retries, 1, true
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = cfg.Timeout, cfg.Timeout, cfg.Timeout
		o.MinRetryBackoff, o.MaxRetryBackoff = 8*time.Millisecond, 100*time.Millisecond
		o.MaintNotificationsConfig = quiet()
		return client.NewClient(o), nil
	}
}

// retries is how often an exchange is repeated: every script may be.
const retries = 2

// quiet leaves out what only a vendor's servers send.
func quiet() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// hide takes the password out of an error's text.
func hide(err error, u *url.URL) string {
	password, ok := u.User.Password()
	if !ok || password == "" {
		return err.Error()
	}
	return strings.NewReplacer(password, "xxxxx", url.QueryEscape(password), "xxxxx").Replace(err.Error())
}
