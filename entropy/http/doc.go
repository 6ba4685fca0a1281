// Package http draws random bytes from services that are asked by HTTP: the published interfaces that it knows by name, and any other
// whose answer is raw bytes or JSON. An answer is used only if its status, content type, encoding, flags and length are what was asked
// for; bytes that came beyond the request are dropped. What a service keeps in store can't be seen from here, so the freshness class is
// unknown unless the interface measures on request.
//
// A [Source] is safe for concurrent use. It starts no goroutine of its own: each draw makes its calls in the caller's.
package http
