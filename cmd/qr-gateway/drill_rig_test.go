package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"qr-gateway/gateway/drill"
)

// process is a program that is killed, frozen and started again, always as it was first.
type process struct {
	name  string
	bin   string
	args  []string
	env   []string
	ready *regexp.Regexp
	log   *tail // of all its lives

	mu    sync.Mutex // guards what follows
	cmd   *exec.Cmd
	ended chan struct{}
}

// start runs it, as often as it takes, as what supervises services does: one that finds no queue ends.
func (p *process) start(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	for {
		err := p.live(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		<-time.After(100 * time.Millisecond)
	}
}

// live runs it once and waits until its log says that it is ready.
func (p *process) live(ctx context.Context) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command(p.bin, p.args...)
	cmd.Env = append(withoutDrill(os.Environ()), p.env...)
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	life, ended := newTail(), make(chan struct{})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer close(ended)
		defer stop()
		defer r.Close()
		life.follow(r)
		_ = cmd.Wait() // it is killed, or asked to end
		p.log.add(life.String())
	}()
	p.mu.Lock()
	p.cmd, p.ended = cmd, ended
	p.mu.Unlock()
	if _, err := life.wait(ctx, p.ready); err != nil {
		return fmt.Errorf("%s is not ready: %w\n%s", p.name, err, life)
	}
	return nil
}

// withoutDrill leaves out what is meant for the drill alone.
func withoutDrill(env []string) []string {
	return slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "QR_DRILL_") })
}

// add takes the log of a life that has ended.
func (l *tail) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.WriteString(text)
}

func (p *process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Signal(s)
}

// kill ends it at once, as a machine that loses its power.
func (p *process) kill() error {
	err := p.signal(syscall.SIGKILL)
	<-p.gone()
	return err
}

func (p *process) gone() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// end asks it to end, and says if it doesn't.
func (p *process) end() error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return nil //nolint:nilerr // it has ended
	}
	select {
	case <-p.gone():
		return nil
	case <-time.After(30 * time.Second):
		return errors.Join(fmt.Errorf("%s does not end", p.name), p.kill())
	}
}

// rig is the cluster of a drill.
type rig struct {
	dir       string
	redis     *process
	redisAddr string
	gateways  map[string]*process
	workers   map[string]*process
	urls      map[string]string // of gateways, and of the workers' probes
	lines     map[string]*drill.Proxy
	lease     time.Duration
	struck    map[string]*sync.Mutex // held while a fault is done to a process or line
}

// Workers of the drill: those of the words, and those of the real model.
const (
	fakeWorkers, fakeSlots = 3, 4
	llamaWorkers           = 2
	drillJobs, drillKey    = 30, 12 // that may wait, in all and of one caller
	// So many may be in the line beside them: a request for which a worker waits is always taken, and what one hands back is not turned away.
	drillSpare = fakeWorkers*fakeSlots + llamaWorkers
)

func newDrillRig(t *testing.T) *rig {
	t.Helper()
	dir := t.TempDir()
	g := &rig{
		dir: dir, gateways: map[string]*process{}, workers: map[string]*process{}, urls: map[string]string{}, lines: map[string]*drill.Proxy{},
		lease: 2 * time.Second, struck: map[string]*sync.Mutex{},
	}
	g.redisAddr = freeAddr(t)
	_, port, _ := net.SplitHostPort(g.redisAddr)
	g.redis = &process{
		name: "redis", bin: need(t, "QR_TEST_REDIS"), log: newTail(), ready: regexp.MustCompile(`(?i)ready to accept connections`),
		args: []string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--dir", dir},
	}
	fakes := fmt.Sprintf("  - {id: words, backend: fake, workers: %d, delay: 30ms}\n", fakeSlots)
	llama := fmt.Sprintf("  - {id: smollm2, path: %q, context: 512, workers: 1, threads: 1}\n", need(t, "QR_TEST_MODEL"))
	for name, models := range map[string]string{"gateway": fakes + llama, "fake": fakes, "llama": llama} {
		write(t, filepath.Join(dir, name+".yaml"), g.config(t, models))
	}
	write(t, filepath.Join(dir, "secret"), "0123456789abcdef0123456789abcdef\n")
	for i := range 2 {
		g.addGateway(t, fmt.Sprintf("gateway%d", i+1))
	}
	for i := range fakeWorkers {
		g.addWorker(t, fmt.Sprintf("worker%d", i+1), "fake", `"probes":"([^"]+)"`)
	}
	for i := range llamaWorkers {
		g.addWorker(t, fmt.Sprintf("llama%d", i+1), "llama", `"msg":"model ready"`)
	}
	for _, name := range slices.Concat([]string{"redis"}, slices.Collect(maps.Keys(g.all())), slices.Collect(maps.Keys(g.lines))) {
		g.struck[name] = &sync.Mutex{}
	}
	return g
}

func (g *rig) config(t *testing.T, models string) string {
	t.Helper()
	return fmt.Sprintf(`
log: {level: info, format: json}
engine: {binary: %q}
redis: {url: "redis://%s/0", name: drill}
link: {listen: "127.0.0.1:0", secret_file: secret}
worker: {secret_file: secret}
queue: {lease: %s, heartbeat: %s, jobs: %d, jobs_per_key: %d}
models:
%s`, need(t, "QR_TEST_ENGINE"), g.redisAddr, g.lease, g.lease/4, drillJobs, drillKey, models)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// freeAddr is an address that nobody listens on, and that no connection is given while its process is away.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(10_000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// line puts a proxy in front of an address.
func (g *rig) line(t *testing.T, name, to string) string {
	t.Helper()
	p, err := drill.NewProxy(freeAddr(t), to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	g.lines[name] = p
	return p.Addr()
}

func (g *rig) addGateway(t *testing.T, name string) {
	t.Helper()
	listen, links := freeAddr(t), freeAddr(t)
	g.urls[name] = "http://" + listen
	g.gateways[name] = &process{
		name: name, bin: need(t, "QR_TEST_GATEWAY"), log: newTail(), ready: regexp.MustCompile(`serves \S+ at `),
		args: []string{"gateway", "--config", filepath.Join(g.dir, "gateway.yaml"), "--listen", listen},
		env: []string{
			"QR_WORKER_NAME=" + name, "QR_REDIS_URL=redis://" + g.line(t, name+"-redis", g.redisAddr) + "/0",
			"QR_LINK_LISTEN=" + links, "QR_LINK_ADVERTISE=" + g.line(t, name+"-links", links),
		},
	}
}

func (g *rig) addWorker(t *testing.T, name, config, ready string) {
	t.Helper()
	listen := freeAddr(t)
	g.urls[name] = "http://" + listen
	g.workers[name] = &process{
		name: name, bin: need(t, "QR_TEST_GATEWAY"), log: newTail(), ready: regexp.MustCompile(ready),
		args: []string{"worker", "--config", filepath.Join(g.dir, config+".yaml"), "--listen", listen},
		env:  []string{"QR_WORKER_NAME=" + name, "QR_REDIS_URL=redis://" + g.line(t, name+"-redis", g.redisAddr) + "/0"},
	}
}

// all are the processes but Redis.
func (g *rig) all() map[string]*process {
	out := maps.Clone(g.gateways)
	maps.Copy(out, g.workers)
	return out
}

// start starts everything, and ends it with the test.
func (g *rig) start(t *testing.T) {
	t.Helper()
	if err := g.redis.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.redis.kill() })
	var wg sync.WaitGroup
	for _, p := range g.all() {
		wg.Go(func() {
			if err := p.start(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for _, p := range g.all() {
			wg.Go(func() {
				if err := p.end(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
	if t.Failed() {
		t.FailNow()
	}
}

// do does a fault and undoes it after its time. The fault before it on the same target comes to its end first.
func (g *rig) do(ctx context.Context, f *drill.Fault, began time.Time) error {
	g.struck[f.Target].Lock()
	defer g.struck[f.Target].Unlock()
	f.At = time.Since(began)
	defer func() { f.For = time.Since(began) - f.At }()
	mend, err := g.begin(ctx, *f)
	if err != nil {
		return fmt.Errorf("%s: %w", f, err)
	}
	select {
	case <-time.After(f.For):
	case <-ctx.Done():
	}
	if err := mend(); err != nil {
		return fmt.Errorf("mend %s: %w", f, err)
	}
	return nil
}

func (g *rig) begin(ctx context.Context, f drill.Fault) (mend func() error, err error) {
	if line := g.lines[f.Target]; line != nil {
		return line.Do(f.Kind)
	}
	p := g.all()[f.Target]
	if p == nil {
		p = g.redis
	}
	again := func() error { return p.start(ctx) }
	switch f.Kind {
	case drill.Kill:
		return again, p.kill()
	case drill.Wipe:
		return again, errors.Join(p.kill(), os.RemoveAll(filepath.Join(g.dir, "appendonlydir")))
	case drill.Flush:
		return func() error { return nil }, g.flush(ctx)
	case drill.Freeze:
		return func() error { return p.signal(syscall.SIGCONT) }, p.signal(syscall.SIGSTOP)
	default:
		return nil, fmt.Errorf("no process has a fault %s", f.Kind)
	}
}

func (g *rig) flush(ctx context.Context) error {
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "tcp", g.redisAddr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("FLUSHALL\r\n")); err != nil {
		return err
	}
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	answer := make([]byte, 16)
	n, err := conn.Read(answer)
	if err == nil && !strings.HasPrefix(string(answer[:n]), "+OK") {
		err = fmt.Errorf("FLUSHALL: %q", answer[:n])
	}
	return err
}
