package service

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"qr-gateway/backends"
	"qr-gateway/backends/llama/engine"
	pb "qr-gateway/backends/llama/enginepb"
	"qr-gateway/backends/llama/worker"
)

// Defaults of a LoadRequest's zero fields.
const (
	defaultWorkers = 4
	defaultContext = 8192 // tokens, or the model's own if that is less
	defaultGroup   = 8
	defaultChunk   = 256
)

// Limits that keep a mistake in a configuration from taking all memory before anyone sees it.
const (
	maxWorkers = 64
	maxContext = 1 << 20
	maxThreads = 512
)

// loaded is a model in use. It is set once and not changed.
type loaded struct {
	model    Model
	language worker.Language
	pool     *worker.Pool
	context  int // tokens of one request
	close    func()
}

// load does all of Load's work. On an error, everything is freed again.
func (s *Service) load(ctx context.Context, req *pb.LoadRequest) (m *loaded, res *pb.LoadResponse, err error) {
	model, err := engine.LoadModel(engine.ModelConfig{Path: req.ModelPath, GPULayers: int(req.GpuLayers), MMap: true})
	if err != nil {
		return nil, nil, modelError(err)
	}
	b := &builder{model: model, info: model.Info()}
	defer func() {
		if err != nil {
			b.free()
		}
	}()
	if b.plan, err = newPlan(req, b.info); err != nil {
		return nil, nil, err
	}
	report, err := b.build(ctx, s.deps)
	if err != nil {
		return nil, nil, err
	}
	m = &loaded{
		model: model, language: b.deps.Language, pool: worker.NewPool(b.workers),
		context: b.plan.context, close: b.free,
	}
	res = b.response(report)
	s.announce(res, b.plan)
	return m, res, nil
}

// modelError says which file is bad and why, so that the supervisor knows that trying again is of no use.
func modelError(err error) error {
	var e *engine.ModelError
	if !errors.As(err, &e) {
		return fmt.Errorf("load model: %w", err)
	}
	return &backends.Error{
		Kind: backends.KindInvalid, Code: pb.CodeModelFile, Param: "model_path",
		Message: fmt.Sprintf("load model %s: %s", e.Path, e.Reason), Hint: e.Hint, Err: err,
	}
}

// plan is a LoadRequest with every choice made.
type plan struct {
	workers, context, threads, poll int
	chunk, minPiece, group          int
	gpu, canonical                  bool
	contexts                        engine.ContextConfig
}

// newPlan fills in what the request leaves open and refuses what can't be.
func newPlan(req *pb.LoadRequest, info engine.ModelInfo) (plan, error) {
	p := plan{
		workers: or(int(req.Workers), defaultWorkers), context: or(int(req.Context), min(info.TrainedContext, defaultContext)),
		threads: or(int(req.Threads), runtime.GOMAXPROCS(0)), poll: int(req.Poll),
		chunk: or(int(req.Chunk), defaultChunk), group: or(int(req.Group), defaultGroup),
		gpu: info.GPU && req.GpuLayers != 0, canonical: req.CanonicalCells, minPiece: 32,
	}
	if req.FlashAttention {
		p.minPiece = 64 // flash attention on a CPU works in other tiles below that
	}
	for _, c := range []struct {
		name          string
		value, lo, hi int
	}{
		{"workers", p.workers, 1, maxWorkers},
		{"context", p.context, 1, maxContext},
		{"threads", p.threads, 1, maxThreads},
		{"poll", p.poll, 0, 100},
		{"group", p.group, 1, worker.MaxGroup},
		{"chunk", p.chunk, 64, 4096},
	} {
		if c.value < c.lo || c.value > c.hi {
			return plan{}, invalid(c.name, fmt.Sprintf("%s is %d; it takes %d to %d", c.name, c.value, c.lo, c.hi))
		}
	}
	if p.chunk%64 != 0 {
		return plan{}, invalid("chunk", fmt.Sprintf("chunk is %d; it takes a multiple of 64", p.chunk))
	}
	kv, err := kvType(req.KvType)
	sizes := worker.Config{Context: p.context, Group: p.group, Chunk: p.chunk, MinPiece: p.minPiece}
	p.contexts = sizes.Engine(p.threads, kv, req.FlashAttention)
	return p, err
}

func kvType(name string) (engine.KVType, error) {
	switch name {
	case "", "f16":
		return engine.F16, nil
	case "f32":
		return engine.F32, nil
	}
	return engine.F16, invalid("kv_type", fmt.Sprintf("kv_type is %q; it takes f16 or f32", name))
}

func invalid(param, message string) error {
	return &backends.Error{Kind: backends.KindInvalid, Code: "invalid_value", Param: param, Message: message}
}

func or(value, fallback int) int {
	if value == 0 {
		return fallback
	}
	return value
}

// response describes what was loaded.
func (b *builder) response(report worker.Report) *pb.LoadResponse {
	return &pb.LoadResponse{
		EngineVersion: engine.Version(), Description: b.info.Description, Architecture: b.info.Architecture,
		Memory: string(b.info.Memory), Vocabulary: uint32(b.info.Vocabulary), TrainedContext: uint32(b.info.TrainedContext),
		Context: uint32(b.plan.context), Workers: uint32(b.plan.workers), Threads: uint32(b.plan.threads),
		ModelBytes: b.info.Bytes, Chat: b.info.HasTemplate, Tokenizer: b.info.HasTokenizer,
		SelfTest: report.Lines, ForkOk: report.ForkOK,
	}
}

// announce logs the start-up lines.
func (s *Service) announce(r *pb.LoadResponse, p plan) {
	s.deps.Log.Info("model loaded",
		"description", r.Description, "architecture", r.Architecture, "memory", r.Memory, "vocabulary", r.Vocabulary,
		"context_per_request", r.Context, "trained_context", r.TrainedContext, "workers", r.Workers, "threads", r.Threads,
		"group", p.group, "chunk", p.chunk, "gpu", p.gpu, "engine", r.EngineVersion)
	for _, line := range r.SelfTest {
		if strings.HasPrefix(line, "ok") {
			s.deps.Log.Info("self-test", "result", line)
		} else {
			s.deps.Log.Warn("self-test", "result", line)
		}
	}
	if int(r.Context) > int(r.TrainedContext) {
		s.deps.Log.Warn("context is longer than the model was trained on", "context", r.Context, "trained_context", r.TrainedContext)
	}
}
