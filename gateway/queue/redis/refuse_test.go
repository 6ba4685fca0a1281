package redis_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	client "github.com/redis/go-redis/v9"

	"qr-gateway/gateway/queue/redis"
)

// do runs commands of an operator on a server.
func (s *server) do(t *testing.T, words ...any) {
	t.Helper()
	c := s.client()
	defer func() { _ = c.Close() }()
	if err := c.Do(t.Context(), words...).Err(); err != nil {
		t.Fatalf("%v: %v", words, err)
	}
}

func (s *server) client() *client.Client {
	return client.NewClient(&client.Options{Network: "unix", Addr: s.socket})
}

func (s *server) url() string { return "unix://" + s.socket }

// refused opens a queue that can't be, and returns what is said of it.
func refused(t *testing.T, c redis.Config) string {
	t.Helper()
	q, err := redis.Open(t.Context(), c, quiet())
	if err == nil {
		_ = q.Close()
		t.Fatal("Open took it")
	}
	var told *redis.RefusedError
	if errors.As(err, &told) && told.Hint == "" {
		t.Errorf("nothing says how to mend: %v", err)
	}
	return err.Error()
}

func at(url string) redis.Config {
	c := redis.DefaultConfig()
	c.URL = url
	return c
}

func says(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q does not say %q", text, w)
		}
	}
	if strings.Contains(text, "sesame") {
		t.Errorf("%q shows the password", text)
	}
}

func TestRefusesEviction(t *testing.T) {
	s := serve(t)
	s.do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	says(t, refused(t, at(s.url())), "allkeys-lru", "redis-cli CONFIG SET maxmemory-policy noeviction")
	s.do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	q, err := redis.Open(t.Context(), at(s.url()), quiet())
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

func TestRefusesPasswords(t *testing.T) {
	s := serve(t, "--requirepass", "sesame-open")
	where := fmt.Sprintf("127.0.0.1:%d/0", s.port)
	says(t, refused(t, at("redis://"+where)), "asks for a password")
	says(t, refused(t, at("redis://:sesame-wrong@"+where)), "refuses the user name or password")
	says(t, refused(t, at("redis://somebody:sesame@"+where)), "refuses the user name or password")
	c := at("redis://" + where)
	c.Password = "sesame-open"
	q, err := redis.Open(t.Context(), c, quiet())
	if err != nil {
		t.Fatal(err)
	}
	_ = q.Close()
	says(t, refused(t, at("redis://:sesame@127.0.0.1:1%/0")), "not a URL")
	says(t, refused(t, at("redis://:sesame@127.0.0.1/zero")), "xxxxx")
}

func TestRefusesDatabase(t *testing.T) {
	s := serve(t, "--databases", "2")
	says(t, refused(t, at(fmt.Sprintf("redis://127.0.0.1:%d/7", s.port))), "no database of this number")
}

func TestRefusesWhatIsNotThere(t *testing.T) {
	says(t, refused(t, at(fmt.Sprintf("redis://127.0.0.1:%d/0", freePort(t)))), "can't be reached", "127.0.0.1")
	says(t, refused(t, at("redis-sentinel://127.0.0.1:1/0")), "master_name")
	says(t, refused(t, at("http://127.0.0.1")), "scheme")
}

// TestRefusesOldServers plays one that says it is too old, for there is no such one at hand.
func TestRefusesOldServers(t *testing.T) {
	for version, hint := range map[string]string{"6.0.16": "6.2 or newer", "5.0.7": "6.2 or newer"} {
		says(t, refused(t, at("redis://"+pretend(t, version))), version, hint)
	}
}

// pretend is a server that knows PING and INFO only.
func pretend(t *testing.T, version string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	info := "redis_version:" + version + "\r\nmaxmemory_policy:noeviction\r\n"
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answer(c, map[string]string{"PING": "+PONG\r\n", "INFO": fmt.Sprintf("$%d\r\n%s\r\n", len(info), info)})
		}
	}()
	return l.Addr().String() + "/0"
}

// answer answers each command that has an answer, and refuses the others.
func answer(c net.Conn, answers map[string]string) {
	defer func() { _ = c.Close() }()
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		for word := range bytes.SplitSeq(buf[:n], []byte("*")) {
			fields := bytes.Fields(word)
			if len(fields) < 3 {
				continue
			}
			reply, ok := answers[strings.ToUpper(string(fields[2]))]
			if !ok {
				reply = "-ERR unknown command\r\n"
			}
			if _, err := c.Write([]byte(reply)); err != nil {
				return
			}
		}
	}
}

// TestWarnsOfSilentServers: a managed server may hide its settings.
func TestWarnsOfSilentServers(t *testing.T) {
	s := miniredis.RunT(t)
	var said bytes.Buffer
	q, err := redis.Open(t.Context(), at("redis://"+s.Addr()+"/0"), redis.Deps{Log: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	_ = q.Close()
	says(t, said.String(), "maxmemory-policy must be noeviction")
}

// TestForeignKeys: what others keep on the server is not touched, and keys of our name that are not ours are not taken for ours.
func TestForeignKeys(t *testing.T) {
	s := serve(t)
	s.do(t, "SET", "{qr:mine}x", "theirs")
	s.do(t, "SET", "job:1", "theirs")
	s.do(t, "RPUSH", "{qr:other}:layout", "a list")
	s.do(t, "SET", "{qr:old}:layout", "qr-gateway queue 0")
	c := at(s.url())
	c.Name = "other"
	says(t, refused(t, c), "{qr:other}", "another name")
	c.Name = "old"
	says(t, refused(t, c), "qr-gateway queue 0", "qr-gateway queue 2")
	c.Name = "mine"
	q, err := redis.Open(t.Context(), c, quiet())
	if err != nil {
		t.Fatal(err)
	}
	_ = q.Close()
	db := s.client()
	defer func() { _ = db.Close() }()
	for _, key := range []string{"{qr:mine}x", "job:1"} {
		if got := db.Get(t.Context(), key).Val(); got != "theirs" {
			t.Errorf("%s is %q", key, got)
		}
	}
}

func TestConfigRefuses(t *testing.T) {
	if err := redis.DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*redis.Config){
		"no name":     func(c *redis.Config) { c.Name = "" },
		"a brace":     func(c *redis.Config) { c.Name = "a}b" },
		"no poll":     func(c *redis.Config) { c.Poll = 0 },
		"no attempts": func(c *redis.Config) { c.Attempts = 0 },
	} {
		c := redis.DefaultConfig()
		if change(&c); c.Validate() == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
