package catalog

import (
	"context"

	"qr-gateway/entropy"
	"qr-gateway/entropy/device"
	"qr-gateway/entropy/exec"
	"qr-gateway/entropy/fallback"
	"qr-gateway/entropy/grpc"
	"qr-gateway/entropy/http"
	"qr-gateway/entropy/local"
	"qr-gateway/entropy/openentropy"
)

// Kinds is the table of source types, one line each.
func Kinds() []Kind {
	return []Kind{
		kind(Kind{Type: "system", Class: entropy.ClassPool, Help: "the operating system's generator"}, local.DefaultSystemConfig, opener(local.OpenSystem)),
		kind(Kind{Type: "timing", Aliases: []string{"timing_noise"}, Class: entropy.ClassJIT, Help: "jitter of this machine's execution times"}, local.DefaultTimingConfig, opener(local.OpenTiming)),
		kind(Kind{Type: "mock", Aliases: []string{"mock_uniform"}, Class: entropy.ClassReplay, Help: "uniform bytes computed from a seed"}, local.DefaultMockConfig, opener(local.OpenMock)),
		kind(Kind{Type: "mock_biased", Class: entropy.ClassReplay, Help: "computed bytes with a known fault, to try tests on"}, local.DefaultBiasedConfig, opener(local.OpenBiased)),
		kind(Kind{Type: "replay", Class: entropy.ClassReplay, Help: "recorded bytes from a file, each once"}, local.DefaultReplayConfig, opener(local.OpenReplay)),
		kind(Kind{Type: "grpc", Aliases: []string{"quantum_grpc"}, Class: entropy.ClassUnknown, Help: "an entropy server over gRPC"}, grpc.DefaultConfig, wired(grpc.Open, observed)),
		kind(Kind{Type: "device", Class: entropy.ClassBuffer, Help: "a character device or serial port, by itself or by recipe"}, device.DefaultConfig, wired(device.Open, nothing[device.Deps])),
		kind(Kind{Type: "http", Class: entropy.ClassUnknown, Help: "a service that is asked by HTTP: ANU, OpenEntropy, Quantis appliance, or any that sends bytes or JSON"}, http.DefaultConfig, opener(http.Open)),
		kind(Kind{Type: "exec", Class: entropy.ClassUnknown, Help: "a program that answers framed requests, or a Python class in our host"}, exec.DefaultConfig, wired(exec.Open, nothing[exec.Deps])),
		kind(Kind{Type: "openentropy", Class: entropy.ClassPool, Help: "noise of a machine by OpenEntropy: its server, program or Python package"}, openentropy.DefaultConfig, opener(openentropy.Open)),
		composed(Kind{Type: "fallback", Class: entropy.ClassUnknown, Help: "other sources in order: the first that answers serves"}, fallback.DefaultConfig, openFallback),
	}
}

// opener fits the Open of a source package that needs nothing of ours to the table.
func opener[C any, S entropy.Source](open func(context.Context, string, C) (S, error)) func(context.Context, string, C, Deps) (entropy.Source, error) {
	return wired(func(ctx context.Context, name string, cfg C, _ struct{}) (S, error) { return open(ctx, name, cfg) }, nothing[struct{}])
}

// wired fits one that needs something, which deps takes from ours.
func wired[C, D any, S entropy.Source](open func(context.Context, string, C, D) (S, error), deps func(Deps) D) func(context.Context, string, C, Deps) (entropy.Source, error) {
	return func(ctx context.Context, name string, cfg C, d Deps) (entropy.Source, error) {
		s, err := open(ctx, name, cfg, deps(d))
		if err != nil {
			return nil, err // and no nil pointer that looks like a source
		}
		return s, nil
	}
}

// nothing is what a package gets that can be told more, but need not.
func nothing[D any](Deps) D { return *new(D) }

func observed(d Deps) grpc.Deps { return grpc.Deps{Observer: d.Requests} }

func composed(line Kind, defaults func() fallback.Config, open func(context.Context, string, fallback.Config, Deps) (entropy.Source, error)) Kind {
	line.Members = func(opts map[string]any) ([]string, error) {
		cfg := defaults()
		if err := decode(opts, &cfg); err != nil {
			return nil, err
		}
		return cfg.Sources, nil
	}
	return kind(line, defaults, open)
}

func openFallback(_ context.Context, name string, cfg fallback.Config, d Deps) (entropy.Source, error) {
	var members []entropy.Source
	for _, m := range cfg.Sources {
		s, err := d.lookup(m)
		if err != nil {
			return nil, &entropy.Error{Kind: entropy.KindConfig, Source: name, Message: "find a member", Err: err}
		}
		members = append(members, s)
	}
	s, err := fallback.New(name, cfg, members)
	if err != nil {
		return nil, err
	}
	return s, nil
}
