// Package exec draws random bytes from a child process, so that a source can be written in any language: the program gets requests on its
// standard input and answers them on its standard output, in the frames that design.md describes; what it writes to standard error goes
// to the log. A program that only pours bytes out can be used too (framing raw). Classes written for the Python world's EntropySource
// interface run in the host in python/, which is part of this package.
//
// One goroutine per [Source] owns the child: it starts it, talks to it, ends it and starts it again. Draws hand their request to it one
// at a time, so a Source may be used by any number of goroutines. A reply that comes late, out of order or with the wrong length is never
// used: its child is ended, and with it everything that was on its way.
package exec
