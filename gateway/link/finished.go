package link

// keepFinished is how many runs are remembered whose last frame was taken.
const keepFinished = 4096

// finished remembers runs whose last frame was delivered. When the worker doesn't learn that, because the stream breaks, it sends the frame
// again; the job is over by then, and without this it would look as if its client had left.
type finished struct {
	seqs map[run]int64
	ring []run
	next int
}

func (f *finished) add(r run, seq int64) {
	if f.seqs == nil {
		f.seqs = map[run]int64{}
	}
	if _, known := f.seqs[r]; known {
		f.seqs[r] = seq
		return
	}
	if len(f.ring) < keepFinished {
		f.ring = append(f.ring, r)
	} else {
		delete(f.seqs, f.ring[f.next])
		f.ring[f.next] = r
		f.next = (f.next + 1) % keepFinished
	}
	f.seqs[r] = seq
}

// has reports that the run's last frame was taken, and that it was this one or came after it.
func (f *finished) has(r run, seq int64) bool {
	last, known := f.seqs[r]
	return known && seq <= last
}
