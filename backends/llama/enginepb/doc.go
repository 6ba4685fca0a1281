// Package enginepb is the protocol between the gateway and an engine process: the generated code of engine.proto, and the
// one mapping between [backends.Error] and a gRPC status. All of it is safe for concurrent use.
package enginepb
