// Package hubpb is the generated protocol of the entropy hub. It has no code of its own.
package hubpb
