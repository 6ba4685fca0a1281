package model

// gateway adds what the gateway of job j may do. It looks at the queue by watching: it may see a state late, but it sees what is there.
func (m *machine) gateway(j int) {
	c, job := &m.Clients[j], &m.Jobs[j]
	if c.Dead || c.End != Open {
		return
	}
	if !c.Begun {
		m.may("submit", j, func(s *State) { s.Clients[j].Begun = true; s.submit(j) })
		return
	}
	m.may(leaves, j, func(s *State) { s.Clients[j].End = Left; s.cancel(j) })
	switch {
	case job.State == Absent && c.Text == 0:
		m.submitAgain("submit what was forgotten", j)
	case job.State == Absent && !m.runs(j):
		m.submitAgain("go on with what was forgotten", j)
	case job.State == Failed && c.Text > 0 && m.rounds(j):
		m.submitAgain("go on behind what was lost", j)
	case job.State == Failed, job.State == Cancelled, job.State == Done:
		m.may("see the end", j, func(s *State) { s.Clients[j].End = Error })
	}
}

// runs reports whether a worker that lives still works on what the client of j waits for.
func (m *machine) runs(j int) bool {
	for _, r := range m.Runs {
		if !r.Dead && r.Job == uint8(j+1) && r.Epoch == m.Clients[j].Epoch && !r.Gone {
			return true
		}
	}
	return false
}

// rounds reports whether job j may be submitted again.
func (m *machine) rounds(j int) bool { return m.Clients[j].Epoch/round < m.l.Rounds }

// submitAgain begins a new round, or gives up.
func (m *machine) submitAgain(what string, j int) {
	if !m.rounds(j) {
		m.may("give up", j, func(s *State) { s.Clients[j].End = Error; s.cancel(j) })
		return
	}
	m.may(what, j, func(s *State) {
		c := &s.Clients[j]
		c.Epoch, c.Seq = (c.Epoch/round+1)*round, 0
		s.Jobs[j].State = Absent
		s.submit(j)
	})
}

// submit queues job j, if the queue doesn't know it.
func (s *State) submit(j int) {
	if s.Jobs[j].State == Absent {
		s.Jobs[j] = Job{State: Waiting, Epoch: s.Clients[j].Epoch, Has: s.Clients[j].Text}
	}
}

func (s *State) cancel(j int) {
	if q := s.Jobs[j].State; q != Absent && !q.Terminal() {
		s.Jobs[j].State = Cancelled
	}
}

// queue adds what the queue does with job j.
func (m *machine) queue(j int) {
	job := m.Jobs[j]
	for w, r := range m.Runs {
		if job.State == Waiting && !r.Dead && r.Job == 0 {
			m.may("claim", w, func(s *State) {
				s.Jobs[j].State, s.Jobs[j].Epoch = Leased, job.Epoch+1
				s.Runs[w] = Run{Job: uint8(j + 1), Epoch: job.Epoch + 1, Has: job.Has}
			})
		}
	}
	if m.orphaned(j) {
		m.may("lease ends", j, func(s *State) { s.loseLease(j, m.l.Attempts) })
	}
	if job.State == Waiting && m.living() == 0 {
		m.may("wait too long", j, func(s *State) { s.Jobs[j].State = Failed })
	}
	if m.Clients[j].Dead {
		m.may("cancel for a dead gateway", j, func(s *State) { s.cancel(j) })
	}
}

// living is how many workers live.
func (m *machine) living() (n int) {
	for _, r := range m.Runs {
		if !r.Dead {
			n++
		}
	}
	return n
}

// orphaned reports that nobody keeps up the lease of job j.
func (m *machine) orphaned(j int) bool {
	if q := m.Jobs[j].State; q != Leased && q != Streaming {
		return false
	}
	for _, r := range m.Runs {
		if r.Holds(&m.State) && int(r.Job) == j+1 {
			return false
		}
	}
	return true
}

// loseLease takes job j from a worker that has not been heard of.
func (s *State) loseLease(j int, attempts uint8) {
	job := &s.Jobs[j]
	job.Lost++
	if job.State == Streaming || job.Lost >= attempts {
		job.State = Failed
		return
	}
	job.State = Waiting
}

// Holds reports whether the lease of a run is good in s.
func (r Run) Holds(s *State) bool {
	if r.Dead || r.Job == 0 {
		return false
	}
	job := s.Jobs[r.Job-1]
	return job.Epoch == r.Epoch && (job.State == Leased || job.State == Streaming)
}

// forgotten reports that the queue doesn't know the job of a run whose client may have text of it: the run goes on. One that has sent no text
// ends, for the gateway submits the job again.
func (r Run) forgotten(s *State) bool { return r.Job != 0 && r.Mark && s.Jobs[r.Job-1].State == Absent }

// frames is how many frames a run sends: those with text, and one that says that it has ended.
func (r Run) frames() uint8 { return Content - r.Has + 1 }

// worker adds what worker w may do.
func (m *machine) worker(w int) {
	r := m.Runs[w]
	if r.Dead || r.Job == 0 {
		return
	}
	rest := func(s *State) { s.Runs[w] = Run{} }
	switch {
	case !r.Holds(&m.State) && !r.forgotten(&m.State):
		m.may("find out that the lease is gone", w, rest)
		if r.Mark && r.Sent < r.frames() {
			m.may("send", w, func(s *State) { s.Runs[w].Sent++ }) // until then it goes on
		}
	case r.Gone:
		m.may("stop for a client that left", w, func(s *State) { s.cancel(int(r.Job - 1)); rest(s) })
	case !r.Mark && r.Sent+1 < r.frames():
		m.may("report text", w, func(s *State) {
			s.Runs[w].Mark = true
			if r.Holds(s) {
				s.Jobs[r.Job-1].State = Streaming
			}
		})
	case r.Sent < r.frames():
		m.may("send", w, func(s *State) { s.Runs[w].Sent++ })
	case r.Taken == r.Sent:
		m.may("settle", w, func(s *State) {
			if r.Holds(s) {
				s.Jobs[r.Job-1].State = Done
			}
			rest(s)
		})
	}
}

// link adds the arrival of the next frame of worker w. Frames of one run arrive in order; the link repeats what it is not sure of, and the
// gateway takes each once.
func (m *machine) link(w int) {
	r := m.Runs[w]
	if r.Job == 0 || r.Taken >= r.Sent || r.Gone {
		return
	}
	m.may("arrive", w, func(s *State) { s.take(w) })
}

// take is what a gateway does with the next frame of worker w.
func (s *State) take(w int) {
	r := &s.Runs[w]
	c := &s.Clients[r.Job-1]
	if c.Dead || c.End != Open {
		r.Gone = true
		return
	}
	r.Taken++
	seq := r.Taken
	if r.Epoch < c.Epoch || r.Epoch == c.Epoch && seq <= c.Seq {
		return
	}
	if r.Epoch > c.Epoch {
		if c.Text > r.Has {
			c.End, c.Spoilt = Error, true // the gateway ends it rather than contradict itself, and it is wrong that it has to
			return
		}
		c.Epoch = r.Epoch
	}
	c.Seq = seq
	if seq == r.frames() {
		c.End = Whole
		return
	}
	c.Text++
	c.Spoilt = c.Spoilt || c.Text != r.Has+seq
}

// faults adds what may go wrong, as long as something may.
func (m *machine) faults() {
	if m.Faults == 0 {
		return
	}
	fault := func(what string, who int, f func(*State)) {
		m.may(what, who, func(s *State) { s.Faults--; f(s) })
	}
	for w, r := range m.Runs {
		if !r.Dead {
			fault("worker dies", w, func(s *State) { s.Runs[w].Dead = true })
		}
		if r.Job != 0 && !r.Dead {
			fault("worker stands still", w, func(s *State) { s.stall(w, m.l.Attempts) })
			fault("engine dies", w, func(s *State) { s.fail(w, m.l.Attempts) })
			fault("link is lost for good", w, func(s *State) { s.Runs[w].Gone = true })
		}
	}
	for j, c := range m.Clients {
		if !c.Dead {
			fault("gateway dies", j, func(s *State) { s.Clients[j].Dead = true })
		}
	}
	fault("queue forgets everything", -1, func(s *State) { s.Jobs = [Jobs]Job{} })
}

// stall takes the lease of worker w away although the worker lives.
func (s *State) stall(w int, attempts uint8) {
	if r := s.Runs[w]; r.Holds(s) {
		s.loseLease(int(r.Job-1), attempts)
	}
}

// fail ends the run of worker w by an engine that died: without text the job goes back, after it the client is told.
func (s *State) fail(w int, attempts uint8) {
	r := s.Runs[w]
	if r.Holds(s) {
		s.loseLease(int(r.Job-1), attempts)
	}
	s.Runs[w] = Run{}
}
