package llama

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"qr-gateway/backends"
	pb "qr-gateway/backends/llama/enginepb"
	"qr-gateway/sampler"
)

const (
	// The engine's socket appears within milliseconds: the connection is tried again at once, not after gRPC's usual second.
	redialMin = 10 * time.Millisecond
	redialMax = 200 * time.Millisecond
	// maxSocketDir leaves room for the socket's name: systems allow paths of about 104 bytes.
	maxSocketDir = 90
	// endWait is how long the end of a process may come after the end of its connection.
	endWait = time.Second
	// firstLives is how many engines may die before one of them has served the model.
	firstLives = 3
)

// errStalled ends an engine that makes no progress.
var errStalled = errors.New("no decode ended for too long while a request was running")

// Run starts the engine and keeps one running until ctx ends; it returns when the last one has. It returns an error if the
// first engine can't be started at all or refuses the model: then trying again is of no use.
func (b *Backend) Run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "qr-engine-")
	if err != nil {
		return fmt.Errorf("make socket directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if len(dir) > maxSocketDir {
		return fmt.Errorf("make socket directory: %s is too long for a socket's path; set TMPDIR to a shorter one", dir)
	}
	wait := backoff{least: b.cfg.BackoffMin, most: b.cfg.BackoffMax, healthy: b.cfg.Healthy}
	for n := 1; ; n++ {
		begun := time.Now()
		err := b.life(ctx, filepath.Join(dir, fmt.Sprintf("%d.sock", n)))
		switch {
		case ctx.Err() != nil:
			b.enter(snapshot{state: stateStopping, reason: "the server is stopping"})
			return nil
		case b.permanent(err, n):
			b.enter(snapshot{state: stateFailed, reason: err.Error()})
			return fmt.Errorf("serve model %s: %w", b.cfg.ID, err)
		}
		pause := wait.next(time.Since(begun), b.jitter())
		b.log.Error("engine ended", "reason", err.Error(), "restart_in", pause.String())
		b.enter(snapshot{state: stateBackoff, reason: err.Error()})
		if !sleep(ctx, pause) {
			b.enter(snapshot{state: stateStopping, reason: "the server is stopping"})
			return nil
		}
		b.restarts.Add(1)
	}
}

// permanent reports an error that no restart mends: there is no program, a model that was never served is refused, or
// the engine has died of it several times. Once a model was served, everything is tried again.
func (b *Backend) permanent(err error, lives int) bool {
	if b.served.Load() {
		return false
	}
	var e *backends.Error
	var l *launchError
	return lives >= firstLives || errors.As(err, &l) || (errors.As(err, &e) && e.Kind == backends.KindInvalid)
}

// sleep waits and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// life is the life of one engine process. It returns why the process ended or had to be ended, after it has.
func (b *Backend) life(ctx context.Context, socket string) error {
	b.enter(snapshot{state: stateStarting, reason: b.lastReason()})
	p, err := b.launch.Launch(socket)
	if err != nil {
		return &launchError{err}
	}
	defer b.end(p)
	// alive ends with the process, and with it everything that waits for an answer.
	alive, died := context.WithCancel(ctx)
	defer died()
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-p.Done():
		case <-alive.Done():
		}
		died()
	}()
	err = b.use(alive, socket)
	if status.Code(err) == codes.Unavailable {
		sleep(alive, endWait) // the connection broke: the end of the process, soon to be seen, has the reason
	}
	died()
	<-watching
	if errors.Is(err, errStalled) {
		p.Kill() // it would not listen, and requests wait
		return err
	}
	select {
	case <-p.Done():
		return b.ended(p.Err())
	default:
		return err
	}
}

// ended is the error of a process that has ended by itself. While it loads, the model's file is the likely cause.
func (b *Backend) ended(err error) error {
	if b.now.Load().state == stateLoading {
		return fmt.Errorf("engine ended while it loaded %s, which may be damaged: %w", b.cfg.Model, err)
	}
	return fmt.Errorf("engine ended: %w", err)
}

// lastReason keeps the reason of the last end in sight while the next engine starts.
func (b *Backend) lastReason() string {
	if old := b.now.Load(); old.state == stateBackoff {
		return old.reason
	}
	return "the engine is starting"
}

// use loads the model into a process that is coming up, and watches it until ctx ends or something is wrong.
func (b *Backend) use(ctx context.Context, socket string) error {
	conn, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(pb.MaxMessage), grpc.MaxCallSendMsgSize(pb.MaxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: redialMin, Multiplier: 1.5, MaxDelay: redialMax},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return fmt.Errorf("connect to engine: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := b.awaitHealth(ctx, conn); err != nil {
		return err
	}
	client := pb.NewEngineServiceClient(conn)
	b.enter(snapshot{state: stateLoading, reason: "the model is being loaded"})
	model, err := b.load(ctx, client)
	if err != nil {
		return err
	}
	b.served.Store(true)
	b.enter(snapshot{state: stateReady, client: client, model: model})
	b.log.Info("model ready", "context_per_request", model.Context, "workers", model.Workers, "memory", model.Memory)
	return b.watch(ctx, client)
}

// awaitHealth waits for the process to answer.
func (b *Backend) awaitHealth(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.StartTimeout)
	defer cancel()
	_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("wait %v for engine to answer: %w", b.cfg.StartTimeout, err)
	}
	return nil
}

// load loads the model and lets it decode a token.
func (b *Backend) load(ctx context.Context, client pb.EngineServiceClient) (*pb.LoadResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.LoadTimeout)
	defer cancel()
	model, err := client.Load(ctx, b.cfg.loadRequest())
	if err != nil {
		if e := pb.FromStatus(err); e != nil {
			return nil, e
		}
		return nil, fmt.Errorf("load model: %w", err)
	}
	if err := warmUp(ctx, client, model); err != nil {
		return nil, fmt.Errorf("decode first token: %w", err)
	}
	return model, nil
}

// warmUp generates one token.
func warmUp(ctx context.Context, client pb.EngineServiceClient, model *pb.LoadResponse) error {
	prompt := []int32{0}
	if model.Tokenizer {
		res, err := client.Tokenize(ctx, &pb.TokenizeRequest{Text: "Hello", AddSpecial: true})
		if err != nil {
			return fmt.Errorf("tokenise: %w", err)
		}
		prompt = res.Tokens
	}
	params := sampler.Defaults()
	params.Temperature = 0
	req, err := generateRequest("warm-up", prompt, 1, &params)
	if err != nil {
		return err
	}
	stream, err := client.Generate(ctx, req)
	for err == nil {
		var res *pb.GenerateResponse
		if res, err = stream.Recv(); err == nil && res.GetFinished() != nil {
			return nil
		}
	}
	return err
}

// watch asks the engine about its progress until ctx ends or it is stuck.
func (b *Backend) watch(ctx context.Context, client pb.EngineServiceClient) error {
	dog := watchdog{limit: b.cfg.StallTimeout, good: time.Now()}
	for sleep(ctx, dog.interval()) {
		ask, cancel := context.WithTimeout(ctx, dog.interval())
		st, err := client.Stats(ask, &pb.StatsRequest{})
		cancel()
		if err != nil {
			st = nil
		}
		if ctx.Err() == nil && dog.stuck(time.Now(), st) {
			return fmt.Errorf("%w (%v)", errStalled, b.cfg.StallTimeout)
		}
	}
	return ctx.Err()
}

// end ends a process and waits until it has: politely first.
func (b *Backend) end(p Process) {
	p.Terminate()
	timer := time.NewTimer(b.cfg.Grace)
	defer timer.Stop()
	select {
	case <-p.Done():
		return
	case <-timer.C:
	}
	b.log.Warn("engine did not stop in time, killing it", "grace", b.cfg.Grace.String())
	p.Kill()
	<-p.Done()
}
