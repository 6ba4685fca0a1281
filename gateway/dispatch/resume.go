package dispatch

import (
	"errors"
	"fmt"
	"slices"

	"qr-gateway/backends"
)

// resumes is what the client has of an answer, for another worker to take it up, and where that was done.
type resumes struct {
	tokens           []int32 // that made the text
	content, thought int     // bytes of text
	opaque           bool    // part of the text was not made of tokens that are known
	keep             bool    // the text itself is kept, for the log of whoever takes the answer up
	text, thoughts   []byte
	at               []int // tokens that the client had, each time
	cut              error // what the answer is taken up behind

	// Bytes that the worker at hand will send although the client has them: see [backends.Started].
	repeat, rethought int
}

// take notes what the client is about to get of e, and takes out of it what the client has.
func (r *resumes) take(e backends.Event) (backends.Event, error) {
	if s := e.Started; s != nil && len(r.at) > 0 {
		if r.repeat, r.rethought = r.content-s.Content, r.thought-s.Reasoning; r.repeat < 0 || r.rethought < 0 {
			r.opaque = true // a third one would do no better
			return e, lost("the worker that took the answer up makes another text of it")
		}
	}
	e.Content, r.repeat = skip(e.Content, r.repeat)
	e.Reasoning, r.rethought = skip(e.Reasoning, r.rethought)
	r.tokens = append(r.tokens, e.Tokens...)
	r.content, r.thought = r.content+len(e.Content), r.thought+len(e.Reasoning)
	if r.keep {
		r.text, r.thoughts = append(r.text, e.Content...), append(r.thoughts, e.Reasoning...)
	}
	r.opaque = r.opaque || e.Raw != nil || (e.Content != "" || e.Reasoning != "") && len(r.tokens) == 0
	return e, nil
}

// said is what the client has of an answer that is taken up, or nil.
func (r *resumes) said() *Said {
	if !r.keep || len(r.at) == 0 {
		return nil
	}
	return &Said{Content: string(r.text), Reasoning: string(r.thoughts), Tokens: r.tokens}
}

// begun says that the client has part of the answer, all of it made of tokens that are known.
func (r *resumes) begun() bool { return len(r.tokens) > 0 && !r.opaque }

func skip(text string, n int) (rest string, left int) {
	took := min(n, len(text))
	return text[took:], n - took
}

// tell adds to a result what came before its part of the answer.
func (r *resumes) tell(res *backends.Result) {
	if len(r.at) == 0 {
		return
	}
	res.Stats.ContinuedAt = r.at
	if res.Stats.Records != nil {
		res.Stats.RecordsDropped += r.at[len(r.at)-1]
	}
}

// CodeDrained is the code of a node's error for a run that it cut short because it shuts down: another worker may take the answer up.
const CodeDrained = "shutting_down"

// cut says that err ended the run of a worker, and says nothing against the answer.
func (f *follower) cut(err error) bool {
	var known *backends.Error
	return errors.As(err, &known) && (known.Kind == backends.KindLost || f.told && known.Code == CodeDrained)
}

// goesOn says whether another worker may take the answer up after err.
func (f *follower) goesOn(err error, most int) bool {
	return f.cut(err) && f.job.Resumes && f.resumes.begun() && len(f.resumes.at) < most
}

// ending is what an answer ends with after err. One that nobody took up ends as it was cut: that its rest had no place in the queue is
// no reason to run all of it again.
func (f *follower) ending(err error) error {
	if f.resumes.cut == nil || f.epoch > 0 || errors.As(err, new(*RepeatError)) {
		return err
	}
	return errors.Join(f.resumes.cut, err)
}

// resume makes what is left of the answer a job of its own: its frames can't be taken for those of the run that err ended.
func (f *follower) resume(whole Job, err error) {
	r := &f.resumes
	r.at, r.cut = append(r.at, len(r.tokens)), err
	p := *whole.Prepared
	p.Delivered = slices.Clone(r.tokens)
	f.job.ID, f.job.Prepared = successor(whole.ID, len(r.at)), &p
	if whole.Repeat != "" { // of its own, or it would repeat its own first part
		f.job.Repeat = fmt.Sprintf("%s\x00%d", whole.Repeat, len(r.at))
	}
	f.epoch, f.seq, f.position, f.content, f.told = 0, 0, -1, false, false
}
