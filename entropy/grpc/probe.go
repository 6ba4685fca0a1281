package grpc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"qr-gateway/entropy"
)

// probeTime bounds a probe.
const probeTime = 3 * time.Second

// Probe implements [entropy.Prober]. It connects and asks the health service where the server has one; no entropy is spent.
func (s *Source) Probe(ctx context.Context) (entropy.Capabilities, error) {
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	caps := entropy.Capabilities{Class: s.cfg.Class, Rate: s.cfg.Rate, MaxDraw: s.cfg.MaxDraw, Details: map[string]string{
		"address": s.cfg.Address, "mode": s.cfg.Mode, "schema": s.cfg.Schema, "tls": strconv.FormatBool(s.cfg.secure()),
		"authenticated": strconv.FormatBool(s.cfg.hasKey()),
	}}
	err := s.probe(ctx, &caps)
	if err == nil {
		return caps, nil
	}
	if caller.Err() != nil {
		return entropy.Capabilities{}, fmt.Errorf("probe %s: %w", s.name, caller.Err())
	}
	return entropy.Capabilities{}, s.fault(err).err
}

func (s *Source) probe(ctx context.Context, caps *entropy.Capabilities) error {
	s.line.renewFailed()
	c, err := s.line.take()
	if err != nil {
		return err
	}
	defer s.line.give(c)
	if err := connect(ctx, c.cc); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	health := grpc_health_v1.NewHealthClient(c.cc)
	said, err := check(ctx, health, serviceOf(s.bytesMethod()))
	if err != nil {
		return err
	}
	caps.Details["health"] = said
	if s.numbers != nil {
		said, err = check(ctx, health, serviceOf(s.cfg.NumberMethod+s.cfg.NumberStream))
		caps.Number = err == nil && said == "SERVING"
	}
	return nil
}

func (s *Source) bytesMethod() string {
	if s.cfg.Mode == ModeUnary {
		return s.cfg.Method
	}
	return s.cfg.Stream
}

// serviceOf is the package.Service of a method path.
func serviceOf(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return name
}

// connect waits for a connection. A server that is not there makes that fail at once; others get the time there is.
func connect(ctx context.Context, cc *rpc.ClientConn) error {
	cc.Connect()
	for {
		state := cc.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure:
			return errors.New("nothing answers there")
		default:
		}
		if !cc.WaitForStateChange(ctx, state) {
			return ctx.Err()
		}
	}
}

// check asks the health service. A server without one, or that does not know the service, says nothing against itself.
func check(ctx context.Context, c grpc_health_v1.HealthClient, service string) (string, error) {
	r, err := c.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
	switch status.Code(err) {
	case codes.OK:
	case codes.Unimplemented:
		return "not offered", nil
	case codes.NotFound:
		return "not known", nil
	default:
		return "", err
	}
	if r.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return "", status.Errorf(codes.Unavailable, "the server says that %s is %s", service, r.GetStatus())
	}
	return r.GetStatus().String(), nil
}
