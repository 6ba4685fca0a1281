package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"qr-gateway/backends"
	pb "qr-gateway/backends/llama/enginepb"
	"qr-gateway/backends/llama/worker"
	"qr-gateway/sampler"
)

// Generate implements the protocol. The worker never waits for the stream: it leaves what it has in a mailbox, and this
// goroutine sends what it finds there.
func (s *Service) Generate(req *pb.GenerateRequest, stream pb.EngineService_GenerateServer) error {
	m, err := s.ready()
	if err != nil {
		return pb.ToStatus(err)
	}
	job, err := m.job(req)
	if err != nil {
		return pb.ToStatus(err)
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	box := newMailbox()
	var res *backends.Result
	go func() {
		defer box.close()
		res, err = m.pool.Do(ctx, job, box.put)
	}()
	sent := forward(box, stream, cancel)
	if err != nil && !(sent != nil && errors.Is(err, context.Canceled)) {
		return pb.ToStatus(err)
	}
	if sent != nil {
		return pb.ToStatus(fmt.Errorf("send event: %w", sent))
	}
	return sendFinished(stream, res)
}

// forward sends what the mailbox has until it is closed, which it always waits for. When sending fails, it cancels.
func forward(box *mailbox, stream pb.EngineService_GenerateServer, cancel func()) (failed error) {
	for {
		events, open := box.take()
		for _, e := range events {
			if failed == nil {
				if failed = stream.Send(e); failed != nil {
					cancel()
				}
			}
		}
		if !open {
			return failed
		}
	}
}

func sendFinished(stream pb.EngineService_GenerateServer, res *backends.Result) error {
	stats, err := json.Marshal(res.Stats)
	if err != nil {
		return pb.ToStatus(fmt.Errorf("encode stats: %w", err))
	}
	return stream.Send(&pb.GenerateResponse{Event: &pb.GenerateResponse_Finished{Finished: &pb.Finished{
		Reason: res.Reason, PromptTokens: uint32(res.Usage.PromptTokens), CompletionTokens: uint32(res.Usage.CompletionTokens),
		CachedTokens: uint32(res.Usage.CachedTokens), StatsJson: stats,
	}}})
}

// job reads a request.
func (m *loaded) job(req *pb.GenerateRequest) (*worker.Job, error) {
	if err := errors.Join(m.checkTokens(req.Tokens), m.checkTokens(req.Delivered)); err != nil {
		return nil, err
	}
	params, err := sampler.ParseParams(req.ParamsJson)
	if err != nil {
		return nil, &backends.Error{Kind: backends.KindInvalid, Code: "invalid_value", Message: err.Error(), Err: err}
	}
	job := &worker.Job{
		ID: req.RequestId, Tokens: req.Tokens, Delivered: req.Delivered, MaxTokens: int(req.MaxTokens), Params: params,
		Stops: req.Stop, IncludeStop: req.IncludeStop,
	}
	if len(req.ChatFormat) == 0 {
		return job, nil
	}
	var f chatFormat
	if err := json.Unmarshal(req.ChatFormat, &f); err != nil {
		return nil, &backends.Error{Kind: backends.KindInvalid, Code: "invalid_value", Param: "chat_format", Message: "read chat format: " + err.Error()}
	}
	job.Thinking, job.Format, job.Allow = f.Thinking, f.Split, f.Allow
	return job, nil
}
