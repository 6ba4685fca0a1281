package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"qr-gateway/backends"
	"qr-gateway/backends/llama"
	"qr-gateway/gateway/sources"
	"qr-gateway/sampler"
)

// generation is one run of `generate`.
type generation struct {
	model, engine  string
	prompt, chat   string
	system         string
	maxTokens      int
	stop           []string
	think, verbose bool
	entropy        []string // sources besides system
	params         *paramFlags
}

func newGenerate() *cobra.Command {
	g := &generation{}
	cmd := &cobra.Command{
		Use:   "generate --model FILE (--prompt TEXT | --chat TEXT)",
		Short: "generate text on the terminal, without a server",
		Long: "generate streams the text to standard output and ends with one line on standard error that says what was done.\n" +
			"Flags that name a parameter take what the request parameter of that name takes.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&g.model, "model", "", "GGUF `FILE`; make -s model-path prints the one that make fetches")
	fl.StringVar(&g.engine, "engine", "", "the qr-engine `FILE` (default: beside this program)")
	fl.StringVar(&g.prompt, "prompt", "", "`TEXT` to continue")
	fl.StringVar(&g.chat, "chat", "", "`TEXT` to answer, by the model's chat template")
	fl.StringVar(&g.system, "system", "", "system `TEXT` for --chat")
	fl.IntVar(&g.maxTokens, "max-tokens", 256, "tokens to generate; 0 is the rest of the context")
	fl.StringArrayVar(&g.stop, "stop", nil, "`TEXT` to stop at; may be given several times")
	fl.BoolVar(&g.think, "think", false, "tell the template to let the model think")
	fl.BoolVar(&g.verbose, "verbose", false, "show the engine's log")
	fl.StringArrayVar(&g.entropy, "entropy", nil, "an entropy source: `TYPE,KEY=VALUE,...`, e.g. grpc,address=unix:///run/qrng.sock,policy=strict; "+
		"the first one serves unless --entropy-source names another")
	g.params = addParamFlags(fl)
	_ = cmd.MarkFlagRequired("model")
	cmd.MarkFlagsOneRequired("prompt", "chat")
	cmd.MarkFlagsMutuallyExclusive("prompt", "chat")
	return cmd
}

func (g *generation) run(ctx context.Context, stdout, stderr io.Writer) error {
	req, err := g.request()
	if err != nil {
		return err
	}
	level := slog.LevelError
	if g.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	lent, err := g.open(ctx, req, log)
	if err != nil {
		return err
	}
	cfg := llama.DefaultConfig()
	cfg.ID, cfg.Binary, cfg.Model, cfg.Workers = filepath.Base(g.model), g.engine, g.model, 1
	cfg.LogLevel, cfg.Entropy = level.String(), lent.Socket()
	backend, err := llama.New(cfg, llama.Deps{Log: log})
	if err != nil {
		return errors.Join(err, lent.Close())
	}
	err = runStack(
		ctx,
		part{"entropy", lent.Run},
		part{"engine", backend.Run},
		part{"generate", func(ctx context.Context) error { return g.generate(ctx, backend, req, stdout, stderr) }},
	)
	return errors.Join(err, ctx.Err()) // an interrupted text is not a whole one, unlike a server that was told to stop
}

// open opens the sources of the flags, and makes the first one that of the request where that names none.
func (g *generation) open(ctx context.Context, req *backends.Request, log *slog.Logger) (*sources.Sources, error) {
	specs, err := parseSources(g.entropy)
	if err != nil {
		return nil, err
	}
	if name := &req.Params.EntropySource; *name == "" && len(specs) > 0 {
		*name = specs[0].Name
	}
	return sources.Open(ctx, sources.Config{Specs: specs, Default: req.Params.EntropySource}, sources.Deps{Log: log})
}

// request checks the flags.
func (g *generation) request() (*backends.Request, error) {
	if g.maxTokens < 0 {
		return nil, fmt.Errorf("--max-tokens is %d; it takes 0 or more", g.maxTokens)
	}
	req := &backends.Request{ID: "generate", Model: filepath.Base(g.model), MaxTokens: g.maxTokens, Stop: g.stop, Params: sampler.Defaults()}
	if err := g.params.apply(&req.Params); err != nil {
		return nil, err
	}
	if g.chat == "" {
		req.Text = &g.prompt
		return req, nil
	}
	var messages []map[string]string
	if g.system != "" {
		messages = append(messages, map[string]string{"role": "system", "content": g.system})
	}
	body, err := json.Marshal(append(messages, map[string]string{"role": "user", "content": g.chat}))
	if err != nil {
		return nil, fmt.Errorf("encode messages: %w", err)
	}
	req.Chat = &backends.Chat{Messages: body, Thinking: g.think}
	return req, nil
}

func (g *generation) generate(ctx context.Context, b *llama.Backend, req *backends.Request, stdout, stderr io.Writer) error {
	if b.WaitReady(ctx) != nil { // the engine's own error is the one to show
		<-ctx.Done()
		return ctx.Err()
	}
	prepared, err := b.Prepare(ctx, req)
	if err != nil {
		return err
	}
	res, err := b.Generate(ctx, prepared, func(e backends.Event) error {
		_, err := io.WriteString(stdout, e.Reasoning+e.Content)
		return err
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout)
	return errors.Join(err, summarize(stderr, res))
}

// summarize writes the one line about a run.
func summarize(w io.Writer, res *backends.Result) error {
	s, n := res.Stats, max(res.Usage.CompletionTokens, 1)
	line := fmt.Sprintf("%d tokens (%s), %.1f ms/token, %s", res.Usage.CompletionTokens, res.Reason, s.DecodeMS/float64(n), s.Decoder)
	if s.Decoder == sampler.DecoderLookahead {
		line += fmt.Sprintf(" %s/%s %s, %.2f peeks/token", s.Mode, s.Choice, s.Curve, s.PeeksPerToken)
		if s.AlphaMin != nil && s.AlphaMax != nil {
			line += fmt.Sprintf(", alpha %.2f to %.2f", *s.AlphaMin, *s.AlphaMax)
		}
	}
	prompt := time.Duration(s.PromptMS * float64(time.Millisecond)).Round(time.Millisecond)
	line += fmt.Sprintf(", entropy %s, u %s", s.EntropySource, s.USource)
	if s.FallbackTokens > 0 {
		line += fmt.Sprintf(", %d of %d tokens by the second choice", s.FallbackTokens, s.Tokens)
	}
	line += fmt.Sprintf(", prompt %d tokens in %s", res.Usage.PromptTokens, prompt)
	_, err := fmt.Fprintln(w, line)
	return err
}

// engineBinary is path, or the qr-engine beside this program.
func engineBinary(path string) (string, error) {
	path, err := llama.Binary(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", &backends.Error{
			Kind: backends.KindUnavailable, Code: "no_engine", Err: err,
			Message: fmt.Sprintf("there is no engine at %s", path), Hint: "build it with `make engine`, or name it with --engine FILE",
		}
	}
	return path, nil
}
