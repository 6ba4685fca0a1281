package route

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"qr-gateway/backends"
)

// crew draws replicas of several sizes.
func crew(t *rapid.T, least int) []candidate {
	n := rapid.IntRange(least, 5).Draw(t, "replicas")
	all := make([]candidate, n)
	for i := range all {
		all[i] = candidate{name: fmt.Sprint("r", i), capacity: float64(rapid.IntRange(1, 8).Draw(t, "capacity"))}
	}
	return all
}

func share(all []candidate, i int) float64 {
	total := 0.0
	for _, c := range all {
		total += c.capacity
	}
	return all[i].capacity / total
}

func keyFor(i int) *key {
	text := fmt.Sprint("conversation ", i)
	k := keyOf(&backends.Prepared{Request: &backends.Request{Text: &text}})
	return &k
}

// near fails when a count of n is further from its share than chance would have it.
func near(t *rapid.T, what string, got, n int, share float64) {
	limit := 5 * math.Sqrt(float64(n)*share*(1-share))
	if d := math.Abs(float64(got) - share*float64(n)); d > limit+1 {
		t.Fatalf("%s got %d of %d requests, want %.0f within %.0f", what, got, n, share*float64(n), limit)
	}
}

// TestSharesOfIdle holds that requests that come one at a time are spread by capacity, with keys and without.
func TestSharesOfIdle(t *testing.T) {
	const n = 4000
	rapid.Check(t, func(t *rapid.T) {
		all, sticky := crew(t, 2), rapid.Bool().Draw(t, "sticky")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		from := rapid.IntRange(0, 1<<40).Draw(t, "from")
		got := make([]int, len(all))
		for i := range n {
			var k *key
			if sticky {
				k = keyFor(from + i)
			}
			at, _ := pick(all, k, 0.5, random.Float64)
			got[at]++
		}
		for i := range all {
			near(t, all[i].name, got[i], n, share(all, i))
		}
	})
}

// TestSharesUnderLoad holds that replicas that are about half busy have work in proportion to their capacity.
func TestSharesUnderLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := crew(t, 2)
		for i := range all {
			all[i].capacity *= 4
		}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var running []int
		most := 0.0
		for i := range all {
			most += all[i].capacity
		}
		sums, sum := make([]float64, len(all)), 0.0
		for range 2000 {
			if float64(len(running)) >= most/2 {
				at := random.IntN(len(running))
				all[running[at]].inFlight--
				running[at] = running[len(running)-1]
				running = running[:len(running)-1]
			}
			at, _ := pick(all, nil, 0.5, random.Float64)
			all[at].inFlight++
			running = append(running, at)
			for i, c := range all {
				sums[i] += float64(c.inFlight)
				sum += float64(c.inFlight)
			}
		}
		for i := range all {
			if got, want := sums[i]/sum, share(all, i); got < want*0.75 || got > want*1.33 {
				t.Fatalf("%s had %.3f of the work, want about %.3f of %v", all[i].name, got, want, all)
			}
		}
	})
}

// TestHomeStays holds that only the keys of a replica that goes find another home.
func TestHomeStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := crew(t, 2)
		gone := rapid.IntRange(0, len(all)-1).Draw(t, "gone")
		rest := append(append([]candidate{}, all[:gone]...), all[gone+1:]...)
		for i := range 200 {
			k := keyFor(i)
			was := all[home(all, *k)].name
			if is := rest[home(rest, *k)].name; was != all[gone].name && is != was {
				t.Fatalf("key %d moved from %s to %s when %s went", i, was, is, all[gone].name)
			}
		}
	})
}

// TestStickyWithinBounds holds that the home is taken unless it is loaded more than the other by the bound.
func TestStickyWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := []candidate{{name: "a", capacity: 4}, {name: "b", capacity: 4}}
		k := keyFor(rapid.IntRange(0, 1000).Draw(t, "key"))
		h := home(all, *k)
		all[h].inFlight, all[1-h].inFlight = rapid.Float64Range(0, 4).Draw(t, "home"), rapid.Float64Range(0, 4).Draw(t, "other")
		at, why := pick(all, k, 0.5, rand.Float64)
		if stays := all[h].inFlight-all[1-h].inFlight <= 2; stays != (at == h) || stays != (why == reasonSticky) {
			t.Fatalf("with %g and %g of 4 the pick is home %t for %s", all[h].inFlight, all[1-h].inFlight, at == h, why)
		}
	})
}

// TestToldLoad holds what is made of the load that an engine tells.
func TestToldLoad(t *testing.T) {
	r := &replica{Replica: Replica{Name: "a", Workers: 4}, capacity: 8, inFlight: 3}
	for name, c := range map[string]struct {
		info backends.Info
		load float64
	}{
		"nothing told":             {backends.Info{Busy: 3}, 3.0 / 8},
		"told, all seen":           {backends.Info{Busy: 3, Load: 1.5}, 6.0 / 8},
		"told, two not seen":       {backends.Info{Busy: 1, Load: 0.25}, 3.0 / 8},
		"told, one not noted here": {backends.Info{Busy: 4, Load: 1}, 4.0 / 8},
	} {
		if got := r.candidate(&c.info).load(); got != c.load {
			t.Errorf("%s: load %g, want %g", name, got, c.load)
		}
	}
}

// TestLessLoadedOfTwo holds that the fullest of several is never picked without a key.
func TestLessLoadedOfTwo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := crew(t, 2)
		full := rapid.IntRange(0, len(all)-1).Draw(t, "full")
		for i := range all {
			all[i].inFlight = rapid.Float64Range(0, 3).Draw(t, "busy")
		}
		all[full].inFlight = 100
		if at, _ := pick(all, nil, 0.5, rand.Float64); at == full {
			t.Fatalf("picked the fullest of %v", all)
		}
	})
}

// TestKeys holds which prompts have one key.
func TestKeys(t *testing.T) {
	chat := func(messages string) key {
		return keyOf(&backends.Prepared{Request: &backends.Request{Chat: &backends.Chat{Messages: json.RawMessage(messages)}}})
	}
	raw := func(body string) key {
		return keyOf(&backends.Prepared{Request: &backends.Request{Raw: json.RawMessage(body)}})
	}
	text := func(s string) key { return keyOf(&backends.Prepared{Request: &backends.Request{Text: &s}}) }
	tokens := func(ids ...int32) key {
		return keyOf(&backends.Prepared{Request: &backends.Request{Tokens: ids}, Tokens: ids})
	}
	long := fmt.Sprintf("%2000d", 7)
	first := `{"role":"system","content":"be brief"},{"role":"user","content":"hello"}`
	for name, c := range map[string]struct {
		a, b key
		same bool
	}{
		"next turn":      {chat("[" + first + "]"), chat("[" + first + `,{"role":"assistant","content":"hi"},{"role":"user","content":"and?"}]`), true},
		"other question": {chat("[" + first + "]"), chat(`[{"role":"system","content":"be brief"},{"role":"user","content":"bye"}]`), false},
		"other system":   {chat("[" + first + "]"), chat(`[{"role":"user","content":"hello"}]`), false},
		"next turn, raw": {raw(`{"messages":[` + first + `],"x":1}`), raw(`{"x":2,"messages":[` + first + `,{"role":"assistant","content":"hi"}]}`), true},
		"raw and not":    {raw(`{"messages":[` + first + `]}`), chat("[" + first + "]"), true},
		"raw prompts":    {raw(`{"prompt":"a"}`), raw(`{"prompt":"b"}`), false},
		"longer text":    {text(long), text(long + "more"), true},
		"other text":     {text("a"), text("b"), false},
		"other tokens":   {tokens(1, 2), tokens(1, 3), false},
		"parts of content": {
			chat(`[{"role":"user","content":[{"type":"text","text":"a"}]}]`), chat(`[{"role":"user","content":[{"type":"text","text":"b"}]}]`), false,
		},
	} {
		if (c.a == c.b) != c.same {
			t.Errorf("%s: the keys are the same: %t", name, !c.same)
		}
	}
}
