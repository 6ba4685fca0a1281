package sidecar

import "context"

// Security is how gRPC is guarded.
type Security struct{}

func (c *Config) checkServer(string) error { return nil }

func (s *Server) bindRPC() error { return nil }

func (s *Server) serveRPC(ctx context.Context) error { return nil }
