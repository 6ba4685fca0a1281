package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"qr-gateway/gateway"
	"qr-gateway/gateway/config"
	"qr-gateway/gateway/node"
	"qr-gateway/gateway/observe"
	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/redis"
	"qr-gateway/gateway/sources"
)

func newServe() *cobra.Command {
	return withConfig("serve", "serve the models of a configuration: gateway, queue and engines in one", func(cmd *cobra.Command, cfg config.Config) error {
		return serve(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
	})
}

// withConfig makes a command that loads a configuration before it runs.
func withConfig(use, short string, run func(*cobra.Command, config.Config) error) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(config.Options{File: file, Env: os.Environ(), Flags: cmd.Flags(), Backends: backendNames()})
			if err != nil {
				return err
			}
			return run(cmd, cfg)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "YAML `FILE`")
	config.AddFlags(cmd.Flags())
	return cmd
}

func newGateway() *cobra.Command {
	return withConfig("gateway", "take requests for workers on other machines, which share a queue (redis.url)", func(cmd *cobra.Command, cfg config.Config) error {
		return runRole(cmd.Context(), cfg, role{name: redis.RoleGateway, edge: true}, cmd.OutOrStdout(), cmd.ErrOrStderr())
	})
}

// serve runs everything until ctx ends.
func serve(ctx context.Context, cfg config.Config, stdout, stderr io.Writer) error {
	return runRole(ctx, cfg, role{name: redis.RoleGateway, edge: true, work: true}, stdout, stderr)
}

// runRole runs what a role consists of until ctx ends.
func runRole(ctx context.Context, cfg config.Config, r role, stdout, stderr io.Writer) error {
	log, err := observe.NewLog(observe.LogConfig{Level: cfg.Log.Level, Format: cfg.Log.Format}, stderr)
	if err != nil {
		return err
	}
	for _, w := range cfg.Warnings {
		log.Warn("configuration", "warning", w)
	}
	s := &stack{cfg: cfg, role: r, stdout: stdout, log: log}
	parts, err := s.compose(ctx)
	if err != nil {
		return errors.Join(err, s.close())
	}
	return runStack(ctx, parts...)
}

func sourcesConfig(cfg config.Config) sources.Config {
	c := sources.Config{Default: cfg.Entropy.Default, Allow: cfg.SourceNames()}
	for _, s := range cfg.Entropy.Sources {
		c.Specs = append(c.Specs, s.Spec())
	}
	return c
}

func queueConfig(cfg config.Config) queue.Config {
	q, c := queue.DefaultConfig(), cfg.Queue
	q.Jobs, q.JobsPerKey, q.Tokens, q.TokensPerKey = c.Jobs, c.JobsPerKey, c.Tokens, c.TokensPerKey
	q.Bytes, q.BytesPerKey, q.Age = int(c.Bytes), int(c.BytesPerKey), c.Age
	q.Wait, q.Lease = c.WaitTimeout, c.Lease
	q.Stall = max(q.Stall, 2*cfg.Engine.StallTimeout) // the engine's own watch, which knows more, comes first
	return q
}

func nodeConfig(c config.Config) node.Config {
	n := node.DefaultConfig()
	n.Heartbeat, n.Grace = c.Queue.Heartbeat, c.Server.DrainTimeout
	return n
}

func edgeConfig(cfg config.Config) gateway.Config {
	g, c := gateway.DefaultConfig(), cfg.Server
	g.PrepareTimeout += cfg.Engine.WaitReady // else a wait for the engine would end without its reason
	g.Listen, g.BodyLimit, g.KeepAlive, g.WriteTimeout = c.Listen, int64(c.BodyLimit), c.KeepAlive, c.WriteTimeout
	g.DrainTimeout, g.Origins, g.Version = c.DrainTimeout, c.CORSOrigins, version()
	g.PublicURL = strings.TrimRight(c.PublicURL, "/")
	g.TaskTokens = cfg.Tasks.MaxTokens
	g.PlainTasks, g.TaskAliases, g.ModelInfo = cfg.Tasks.Mode == config.TasksPlain, cfg.Tasks.Aliases, cfg.OpenWebUI.ModelInfo
	return g
}

// cards are how people are shown the models.
func cards(models []config.Model) map[string]gateway.Card {
	out := make(map[string]gateway.Card, len(models))
	for _, m := range models {
		out[m.ID] = gateway.Card{Name: m.Name, Prompts: m.Prompts, Aliases: m.Aliases}
	}
	return out
}

// greet waits for the models and prints what to try. It lasts as long as the server.
func greet(ctx context.Context, all models, id string, addr net.Addr, stdout io.Writer, log *slog.Logger) error {
	if all.waitReady(ctx) == nil { // else the engines' own error is the one to show
		log.Info("ready", "address", addr.String())
		fmt.Fprintf(stdout, greeting, localURL(addr), id)
	}
	<-ctx.Done()
	return nil
}

// localURL is where somebody on this machine reaches addr.
func localURL(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return fmt.Sprintf("http://127.0.0.1:%d", tcp.Port)
	}
	return "http://" + addr.String()
}

// greeting takes the server's URL and a model's id.
const greeting = `
qr-gateway serves %[2]s at %[1]s/v1. Three things to try:

  curl -s %[1]s/v1/chat/completions -H 'Content-Type: application/json' -d '{"model": "%[2]s", "max_tokens": 80, "qr_alpha": 0.3, "messages": [{"role": "user", "content": "Begin a story about a lighthouse."}]}'

  python3 -c 'from openai import OpenAI; print(OpenAI(base_url="%[1]s/v1", api_key="none").chat.completions.create(model="%[2]s", max_tokens=80, extra_body={"qr_alpha": 0.3}, messages=[{"role": "user", "content": "Begin a story about a lighthouse."}]).choices[0].message.content)'

  (that is for Python with the openai package: pip install openai)

  Open WebUI: Admin Panel > Settings > Connections > OpenAI API, URL %[1]s/v1, any key

`
