package config_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"qr-gateway/gateway/config"
)

// TestReplicas holds that a replica is its model but for what it says itself.
func TestReplicas(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	write(t, file, `
models:
  - id: m
    path: m.gguf
    workers: 2
    context: 512
    aliases: [other]
    defaults: {qr_alpha: 0.2}
    route: {sticky: false, breaker: {window: 1m}}
    replicas:
      - name: near
      - {name: wide, weight: 1.5, workers: 6, path: copy/m.gguf, threads: null}
      - {name: try, backend: fake, weight: 2}
  - {id: lone, backend: fake}
`)
	c, err := config.Load(config.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	type what struct {
		Name, ID, Backend, Path string
		Weight                  float64
		Workers, Context, Group int
	}
	var got []what
	for _, b := range append(c.Models[0].Backends(), c.Models[1].Backends()...) {
		m := b.Model
		if rel, err := filepath.Rel(filepath.Dir(file), m.Path); err == nil {
			m.Path = rel
		}
		got = append(got, what{b.Name, m.ID, m.Backend, m.Path, b.Weight, m.Workers, m.Context, m.Group})
	}
	want := []what{
		{"near", "m", "llama", "m.gguf", 1, 2, 512, 8},
		{"wide", "m", "llama", filepath.Join("copy", "m.gguf"), 1.5, 6, 512, 8},
		{"try", "m", "fake", "m.gguf", 2, 2, 512, 8},
		{"lone", "lone", "fake", "", 1, 4, 0, 8},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("replicas (-want +got):\n%s", diff)
	}
	route := config.Route{Tries: 3, StickyLoad: 0.5, Breaker: config.Breaker{Failures: 5, Window: time.Minute, Open: 10 * time.Second}}
	if diff := cmp.Diff(route, c.Models[0].Route); diff != "" {
		t.Errorf("route (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"other"}, c.Models[0].Aliases); diff != "" {
		t.Error(diff)
	}
}

// TestReplicasOfAFlag holds that --model replaces the path that the replicas have of their model.
func TestReplicasOfAFlag(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	write(t, file, "models: [{id: m, path: a.gguf, replicas: [{name: x}, {name: y, path: /own.gguf}]}]")
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.AddFlags(flags)
	if err := flags.Parse([]string{"--model", "m=/given.gguf"}); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Options{File: file, Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"/given.gguf", "/own.gguf"} {
		if got := c.Models[0].Backends()[i].Model.Path; got != want {
			t.Errorf("replica %d has %s, want %s", i, got, want)
		}
	}
}

// TestReplicasInherit holds that what a replica adds to a key with keys of its own stays with it, and is added to what the model says.
func TestReplicasInherit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	write(t, file, `
models:
  - id: m
    backend: openai
    url: http://x/v1
    headers: {a: "1", b: "2"}
    timeouts: {connect: 1s, idle: 2s}
    replicas:
      - {name: x, headers: {b: "3", c: "4"}, timeouts: {idle: 9s, connect: null}}
      - {name: y}
`)
	c, err := config.Load(config.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	x, y := c.Models[0].Backends()[0].Model, c.Models[0].Backends()[1].Model
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "3", "c": "4"}, x.Headers); diff != "" {
		t.Errorf("headers of x (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "2"}, y.Headers); diff != "" {
		t.Errorf("headers of y (-want +got):\n%s", diff)
	}
	if x.Timeouts.Connect != time.Second || x.Timeouts.Idle != 9*time.Second || y.Timeouts.Idle != 2*time.Second || x.Timeouts.Total != y.Timeouts.Total {
		t.Errorf("time-outs %+v and %+v", x.Timeouts, y.Timeouts)
	}
}
