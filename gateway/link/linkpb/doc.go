// Package linkpb is the protocol between workers and gateways: the generated code of link.proto. It has no state of its own.
package linkpb
