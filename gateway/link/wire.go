package link

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/link/linkpb"
)

// encode makes JSON that keeps <, > and & as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// packFrame makes the message of a frame.
func packFrame(f dispatch.Frame) (*linkpb.Frame, error) {
	out := &linkpb.Frame{Job: f.Job, Epoch: f.Epoch, Seq: f.Seq}
	var data []byte
	var err error
	switch {
	case f.Err != nil:
		data, err = packError(f.Err)
		out.What = &linkpb.Frame_Error{Error: data}
	case f.Result != nil:
		data, err = encode(f.Result)
		out.What = &linkpb.Frame_Result{Result: data}
	case rawAlone(f.Event):
		out.What = &linkpb.Frame_Raw{Raw: f.Event.Raw}
	default:
		data, err = encode(f.Event)
		out.What = &linkpb.Frame_Event{Event: data}
	}
	if err != nil {
		return nil, fmt.Errorf("encode frame %d of job %s: %w", f.Seq, f.Job, err)
	}
	return out, nil
}

// rawAlone reports an event that is nothing but Raw, which travels as it is: as a part of JSON its spaces would be lost.
func rawAlone(e backends.Event) bool {
	return len(e.Raw) > 0 && e.Started == nil && e.Content == "" && e.Reasoning == "" && len(e.Tokens) == 0
}

// unpackFrame is the inverse of packFrame.
func unpackFrame(m *linkpb.Frame) (dispatch.Frame, error) {
	f := dispatch.Frame{Job: m.Job, Epoch: m.Epoch, Seq: m.Seq}
	var err error
	switch what := m.What.(type) {
	case *linkpb.Frame_Error:
		f.Err, err = unpackError(what.Error)
	case *linkpb.Frame_Result:
		f.Result = new(backends.Result)
		err = json.Unmarshal(what.Result, f.Result)
	case *linkpb.Frame_Raw:
		f.Event.Raw = what.Raw
	case *linkpb.Frame_Event:
		err = json.Unmarshal(what.Event, &f.Event)
	default:
		err = errors.New("it carries nothing")
	}
	if err != nil {
		return f, fmt.Errorf("decode frame %d of job %s: %w", m.Seq, m.Job, err)
	}
	return f, nil
}

// final reports a run's last frame.
func final(m *linkpb.Frame) bool { return m.GetResult() != nil || m.GetError() != nil }

func packError(e *backends.Error) ([]byte, error) { return encode(backends.FailureOf(e)) }

func unpackError(data []byte) (*backends.Error, error) {
	var f backends.Failure
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	return f.Unpack(), nil
}

// asError makes any error one that a client may see.
func asError(err error) *backends.Error {
	if e, ok := errors.AsType[*backends.Error](err); ok {
		return e
	}
	return &backends.Error{Kind: backends.KindInternal, Code: "internal_error", Message: "the request failed inside the worker", Err: err}
}

// packInfos makes the announcement of models.
func packInfos(models []backends.Info) ([]byte, error) {
	data, err := encode(models)
	if err != nil {
		return nil, fmt.Errorf("encode models: %w", err)
	}
	return data, nil
}

func unpackInfos(data []byte) ([]backends.Info, error) {
	var models []backends.Info
	if err := json.Unmarshal(data, &models); err != nil {
		return nil, fmt.Errorf("decode models: %w", err)
	}
	return models, nil
}

// packRequest makes the request of a Prepare.
func packRequest(r *backends.Request) ([]byte, error) {
	data, err := encode(r)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return data, nil
}

func unpackRequest(data []byte) (*backends.Request, error) {
	var r backends.Request
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("decode request: %w", err)
	}
	return &r, nil
}
