package guard

import (
	"qr-gateway/entropy"
)

// Reason is why a block could not be used as it came.
type Reason uint8

// The reasons. Those up to ReasonProtocol are alarms: they keep the source out until a start-up test passes.
const (
	ReasonNone Reason = iota
	ReasonRepetition
	ReasonProportion
	ReasonDuplicate
	ReasonTooFast
	ReasonTimeOrder
	ReasonOtherDevice
	ReasonLength
	ReasonHealth
	ReasonProtocol
	ReasonTimeout
	ReasonTransport
	ReasonQuota
	ReasonRefused
	ReasonOpen
	ReasonClosed
	ReasonOther
	ReasonLatched
	ReasonMember // a source that is made of others was served by a later one
	nReasons
)

var reasonNames = [nReasons]string{
	"none", "repetition", "proportion", "duplicate", "too_fast", "time_order", "other_device", "length", "health", "protocol",
	"timeout", "transport", "quota", "refused", "open", "closed", "other", "latched", "member",
}

// String is the name in records and metrics.
func (r Reason) String() string { return reasonNames[r] }

// Reasons lists the names, for a metric that shows zeros too.
func Reasons() []string { return append([]string(nil), reasonNames[1:]...) }

func (r Reason) alarm() bool { return r != ReasonNone && r <= ReasonProtocol }

// kind is the error kind of an alarm that the guard itself raised.
func (r Reason) kind() entropy.Kind {
	if r == ReasonTimeOrder || r == ReasonOtherDevice || r == ReasonLength || r == ReasonProtocol {
		return entropy.KindProtocol
	}
	return entropy.KindHealth
}

// hard pairs the flags that forbid the use of a block with their reasons, the gravest first.
var hard = [...]struct {
	flag   entropy.Flags
	reason Reason
}{
	{entropy.FlagRepetition, ReasonRepetition},
	{entropy.FlagProportion, ReasonProportion},
	{entropy.FlagDuplicate, ReasonDuplicate},
	{entropy.FlagOtherDevice, ReasonOtherDevice},
	{entropy.FlagTimeOrder, ReasonTimeOrder},
	{entropy.FlagTooFast, ReasonTooFast},
}

func reasonOfFlags(f entropy.Flags) Reason {
	for _, h := range hard {
		if f&h.flag != 0 {
			return h.reason
		}
	}
	return ReasonNone
}

// kinds pairs the kinds of errors with their reasons.
var kinds = map[entropy.Kind]Reason{
	entropy.KindTimeout:   ReasonTimeout,
	entropy.KindTransport: ReasonTransport,
	entropy.KindQuota:     ReasonQuota,
	entropy.KindRefused:   ReasonRefused,
	entropy.KindOpen:      ReasonOpen,
	entropy.KindProtocol:  ReasonProtocol,
	entropy.KindHealth:    ReasonHealth,
	entropy.KindClosed:    ReasonClosed,
	entropy.KindConfig:    ReasonOther,
}

func reasonOfError(err error) Reason {
	if r, ok := kinds[entropy.KindOf(err)]; ok {
		return r
	}
	return ReasonOther
}
