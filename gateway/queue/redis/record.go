package redis

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"strings"

	"qr-gateway/gateway/queue"
)

// record is what is kept of a job, in this order: texts, each with a byte 1 behind it. line is class:model.
var record = strings.Fields("state epoch rev seq taken expires moved attempts free token holder settled logbytes logfirst " +
	"watch readers node reason key line cost weight charge bytes sub dl client idem")

// codec is the Lua functions that read and write a record: one match and one concatenation, which is the fastest that Lua has.
func codec() string {
	names := strings.Join(record, ", ")
	fields, parts := make([]string, len(record)), make([]string, len(record))
	for i, name := range record {
		fields[i], parts[i] = name+" = "+name, "j."+name+" .. '\\1'"
	}
	return "local function decode(id, raw)\n" +
		"  local " + names + " = string.match(raw, '^" + strings.Repeat(`([^\1]*)\1`, len(record)) + "$')\n" +
		"  return { id = id, " + strings.Join(fields, ", ") + " }\n" +
		"end\n" +
		"local function encode(j)\n" +
		"  return " + strings.Join(parts, " .. ") + "\n" +
		"end\n"
}

// Texts are kept without bytes 1, and so without 2, which stands for it.
var (
	hider  = strings.NewReplacer("\x01", "\x02a", "\x02", "\x02b")
	reader = strings.NewReplacer("\x02a", "\x01", "\x02b", "\x02")
)

func hidden(s string) string {
	if strings.IndexByte(s, 1) < 0 && strings.IndexByte(s, 2) < 0 {
		return s
	}
	return hider.Replace(s)
}

func shown(s string) string {
	if strings.IndexByte(s, 2) < 0 {
		return s
	}
	return reader.Replace(s)
}

// parcel is what the node gets of a job, which scripts hand on as it is but for its beginning, the prefixes and a byte 1: they look for
// warm ones there. The payload is the rest.
func parcel(j *queue.Job) []byte {
	out := make([]byte, 0, 64+17*len(j.Prefixes)+len(j.Key)+len(j.Model)+len(j.IdempotencyKey)+len(j.Owner)+len(j.Payload))
	for i, h := range j.Prefixes {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendUint(out, h, 16)
	}
	out = append(out, 1)
	for _, s := range []string{j.Key, j.Model, j.IdempotencyKey, j.Owner} {
		out = append(binary.AppendUvarint(out, uint64(len(s))), s...)
	}
	out = binary.AppendUvarint(out, uint64(j.Class)) //nolint:gosec // it is checked
	out = binary.AppendUvarint(out, uint64(j.Cost))  //nolint:gosec // it is checked
	out = binary.BigEndian.AppendUint64(out, math.Float64bits(weight(j)))
	return append(out, j.Payload...)
}

var errParcel = errors.New("what the queue's server keeps of the job is not whole")

// openParcel reads a parcel. The payload is part of data.
func openParcel(data []byte) (j queue.Job, err error) {
	head := bytes.IndexByte(data, 1)
	if head < 0 {
		return j, errParcel
	}
	j.Prefixes = readPrefixes(string(data[:head]))
	data = data[head+1:]
	for _, s := range []*string{&j.Key, &j.Model, &j.IdempotencyKey, &j.Owner} {
		n, k := binary.Uvarint(data)
		if k <= 0 || n > uint64(len(data)-k) {
			return j, errParcel
		}
		*s, data = string(data[k:k+int(n)]), data[k+int(n):] //nolint:gosec // n is not above the length
	}
	class, k := binary.Uvarint(data)
	if k <= 0 || class >= queue.Classes {
		return j, errParcel
	}
	cost, m := binary.Uvarint(data[k:])
	if m <= 0 || cost > math.MaxInt64 || len(data) < k+m+8 {
		return j, errParcel
	}
	j.Class, j.Cost, j.Weight = queue.Class(class), int(cost), math.Float64frombits(binary.BigEndian.Uint64(data[k+m:]))
	j.Payload = data[k+m+8:]
	return j, nil
}
