package sampler

import "slices"

// Headings of the documentation.
const (
	groupGRPC    = "Process: gRPC source of the environment"
	groupSources = "Process: Sources of the environment"
	groupBreaker = "Process: Circuit breaker"
	groupOE      = "Process: OpenEntropy"
	groupProcess = "Process: Other"
)

func processRows() []row[Process] {
	return slices.Concat(grpcRows(), grpcMoreRows(), envSourceRows(), breakerRows(), openEntropyRows(), otherRows())
}

func grpcRows() []row[Process] {
	return []row[Process]{
		{
			Field{
				Key: "qr_grpc_server_address", Group: groupGRPC, Env: "QR_GRPC_SERVER_ADDRESS", Type: TypeString, MaxLen: 512, Default: "localhost:50051",
				Help: "Address of the entropy server: host:port or unix:///path.",
			},
			func(p *Process) any { return &p.GRPCServerAddress },
		},
		{
			Field{
				Key: "qr_grpc_timeout_ms", Group: groupGRPC, Env: "QR_GRPC_TIMEOUT_MS", Type: TypeNumber, MinOpen: true, Max: 600000, Default: 5000.0, Unit: "milliseconds",
				Help: "Longest that one call may take, and what the adaptive timeout starts from.",
			},
			func(p *Process) any { return &p.GRPCTimeoutMS },
		},
		{
			Field{
				Key: "qr_grpc_retry_count", Group: groupGRPC, Env: "QR_GRPC_RETRY_COUNT", Type: TypeInteger, Max: 100, Default: 2,
				Help: "Attempts after the first.",
			},
			func(p *Process) any { return &p.GRPCRetryCount },
		},
		{
			Field{
				Key: "qr_grpc_mode", Group: groupGRPC, Env: "QR_GRPC_MODE", Type: TypeString, Enum: []string{"unary", "server_streaming", "bidi_streaming"}, Default: "unary",
				Help: "How bytes are asked for: a call each, or over one stream.",
			},
			func(p *Process) any { return &p.GRPCMode },
		},
		{
			Field{
				Key: "qr_grpc_method_path", Group: groupGRPC, Env: "QR_GRPC_METHOD_PATH", Type: TypeString, MaxLen: 256, Default: "/qr_entropy.EntropyService/GetEntropy",
				Help: "Method of a call.",
			},
			func(p *Process) any { return &p.GRPCMethodPath },
		},
		{
			Field{
				Key: "qr_grpc_stream_method_path", Group: groupGRPC, Env: "QR_GRPC_STREAM_METHOD_PATH", Type: TypeString, MaxLen: 256, Default: "/qr_entropy.EntropyService/StreamEntropy",
				Help: "Method of a stream; empty is none.",
			},
			func(p *Process) any { return &p.GRPCStreamMethodPath },
		},
	}
}

func grpcMoreRows() []row[Process] {
	return []row[Process]{
		{
			Field{
				Key: "qr_grpc_draw_method_path", Group: groupGRPC, Env: "QR_GRPC_DRAW_METHOD_PATH", Type: TypeString, MaxLen: 256, Default: "/qr_purity.PurityService/GetDraw",
				Help: "Method of a number that the server makes; empty is none.",
			},
			func(p *Process) any { return &p.GRPCDrawMethodPath },
		},
		{
			Field{
				Key: "qr_grpc_draw_stream_method_path", Group: groupGRPC, Env: "QR_GRPC_DRAW_STREAM_METHOD_PATH", Type: TypeString, MaxLen: 256, Default: "/qr_purity.PurityService/StreamDraws",
				Help: "Method of a stream of such numbers; empty is none.",
			},
			func(p *Process) any { return &p.GRPCDrawStreamPath },
		},
		{
			Field{
				Key: "qr_grpc_api_key", Group: groupGRPC, Env: "QR_GRPC_API_KEY", Type: TypeString, MaxLen: 4096, Default: "", Secret: true,
				Help: "Key that is sent with every call; empty is none. It is never shown.",
			},
			func(p *Process) any { return &p.GRPCAPIKey },
		},
		{
			Field{
				Key: "qr_grpc_api_key_header", Group: groupGRPC, Env: "QR_GRPC_API_KEY_HEADER", Type: TypeString, MaxLen: 128, Default: "api-key",
				Help: "Metadata key that the key is sent under.",
			},
			func(p *Process) any { return &p.GRPCAPIKeyHeader },
		},
		{
			Field{
				Key: "qr_grpc_preprobe_enabled", Group: groupGRPC, Env: "QR_GRPC_PREPROBE_ENABLED", Type: TypeBool, Default: true,
				Help: "Accepted for qr-sampler's sake: the client finds an absent server by itself, without a probe.",
			},
			func(p *Process) any { return &p.GRPCPreprobe },
		},
	}
}

func envSourceRows() []row[Process] {
	return []row[Process]{
		{
			Field{
				Key: "qr_fallback_mode", Group: groupSources, Env: "QR_FALLBACK_MODE", Type: TypeString, Enum: []string{"error", "system", "mock_uniform"}, Default: "system",
				Help: "What happens when the source of the environment fails: the request ends, or goes on with flagged bytes of another source.",
			},
			func(p *Process) any { return &p.FallbackMode },
		},
		{
			Field{
				Key: "qr_entropy_source_instances", Group: groupSources, Env: "QR_ENTROPY_SOURCE_INSTANCES", Type: TypeString, MaxLen: 1 << 16, Default: "{}", Secret: true,
				Help: "JSON object of named sources: {\"lane_a\": {\"type\": \"quantum_grpc\", \"grpc_server_address\": \"host:50051\"}}. In the file, entropy.sources says the same.",
			},
			func(p *Process) any { return &p.EntropySourceInstances },
		},
		{
			Field{
				Key: "qr_preinit_entropy_sources", Group: groupSources, Env: "QR_PREINIT_ENTROPY_SOURCES", Type: TypeString, MaxLen: 4096, Default: "",
				Help: "Accepted for qr-sampler's sake: every configured source is opened at start.",
			},
			func(p *Process) any { return &p.PreinitEntropySources },
		},
		{
			Field{
				Key: "qr_qrng_max_bytes_per_request", Group: groupSources, Env: "QR_QRNG_MAX_BYTES_PER_REQUEST", Type: TypeInteger, Max: 1 << 40, Default: 35200, Unit: "bytes",
				Help: "Accepted for qr-sampler's sake: a source's own options bound a draw.",
			},
			func(p *Process) any { return &p.QRNGMaxBytesPerRequest },
		},
		{
			Field{
				Key: "qr_qrng_max_requests_per_minute", Group: groupSources, Env: "QR_QRNG_MAX_REQUESTS_PER_MINUTE", Type: TypeInteger, Max: 1 << 40, Default: 500,
				Help: "Accepted for qr-sampler's sake: a source's own options bound its use.",
			},
			func(p *Process) any { return &p.QRNGMaxRequestsPerMinute },
		},
		{
			Field{
				Key: "qr_qrng_max_bytes_per_day", Group: groupSources, Env: "QR_QRNG_MAX_BYTES_PER_DAY", Type: TypeInteger, Max: 1 << 50, Default: 524288000, Unit: "bytes",
				Help: "Accepted for qr-sampler's sake: a source's own options bound its use.",
			},
			func(p *Process) any { return &p.QRNGMaxBytesPerDay },
		},
	}
}

func breakerRows() []row[Process] {
	return []row[Process]{
		{
			Field{
				Key: "qr_cb_window_size", Group: groupBreaker, Env: "QR_CB_WINDOW_SIZE", Type: TypeInteger, Min: 1, Max: 100000, Default: 100, Unit: "calls",
				Help: "Calls that the adaptive timeout is computed from.",
			},
			func(p *Process) any { return &p.CBWindowSize },
		},
		{
			Field{
				Key: "qr_cb_min_timeout_ms", Group: groupBreaker, Env: "QR_CB_MIN_TIMEOUT_MS", Type: TypeNumber, MinOpen: true, Max: 600000, Default: 5.0, Unit: "milliseconds",
				Help: "Least that the adaptive timeout becomes.",
			},
			func(p *Process) any { return &p.CBMinTimeoutMS },
		},
		{
			Field{
				Key: "qr_cb_timeout_multiplier", Group: groupBreaker, Env: "QR_CB_TIMEOUT_MULTIPLIER", Type: TypeNumber, Min: 1, Max: 1000, Default: 1.5,
				Help: "The adaptive timeout is this many times the 99th percentile.",
			},
			func(p *Process) any { return &p.CBTimeoutMultiplier },
		},
		{
			Field{
				Key: "qr_cb_recovery_window_s", Group: groupBreaker, Env: "QR_CB_RECOVERY_WINDOW_S", Type: TypeNumber, MinOpen: true, Max: 86400, Default: 10.0, Unit: "seconds",
				Help: "How long the breaker stays open the first time.",
			},
			func(p *Process) any { return &p.CBRecoveryWindowS },
		},
		{
			Field{
				Key: "qr_cb_recovery_window_max_s", Group: groupBreaker, Env: "QR_CB_RECOVERY_WINDOW_MAX_S", Type: TypeNumber, MinOpen: true, Max: 86400, Default: 60.0, Unit: "seconds",
				Help: "How long it stays open at most.",
			},
			func(p *Process) any { return &p.CBRecoveryWindowMaxS },
		},
		{
			Field{
				Key: "qr_cb_max_consecutive_failures", Group: groupBreaker, Env: "QR_CB_MAX_CONSECUTIVE_FAILURES", Type: TypeInteger, Min: 1, Max: 10000, Default: 3,
				Help: "Failures in a row that open it.",
			},
			func(p *Process) any { return &p.CBMaxConsecutiveFailures },
		},
	}
}

func openEntropyRows() []row[Process] {
	return []row[Process]{
		{
			Field{
				Key: "qr_oe_conditioning", Group: groupOE, Env: "QR_OE_CONDITIONING", Type: TypeString, Enum: []string{"raw", "vonneumann", "sha256"}, Default: "raw",
				Help: "Conditioning that OpenEntropy is asked for.",
			},
			func(p *Process) any { return &p.OEConditioning },
		},
		{
			Field{
				Key: "qr_oe_sources", Group: groupOE, Env: "QR_OE_SOURCES", Type: TypeString, MaxLen: 4096, Default: "",
				Help: "The one source that OpenEntropy's server is asked for; empty is its pool of all.",
			},
			func(p *Process) any { return &p.OESources },
		},
		{
			Field{
				Key: "qr_oe_parallel", Group: groupOE, Env: "QR_OE_PARALLEL", Type: TypeBool, Default: true,
				Help: "Accepted for qr-sampler's sake: OpenEntropy's server reads its sources as it likes.",
			},
			func(p *Process) any { return &p.OEParallel },
		},
		{
			Field{
				Key: "qr_oe_timeout", Group: groupOE, Env: "QR_OE_TIMEOUT", Type: TypeNumber, MinOpen: true, Max: 600, Default: 5.0, Unit: "seconds",
				Help: "Longest that OpenEntropy may take.",
			},
			func(p *Process) any { return &p.OETimeout },
		},
	}
}

func otherRows() []row[Process] {
	return []row[Process]{
		{
			Field{
				Key: "qr_apply_parallel_rows", Group: groupProcess, Env: "QR_APPLY_PARALLEL_ROWS", Type: TypeInteger, Max: 1024, Default: 0,
				Help: "Accepted for qr-sampler's sake: a model's workers say how many requests run at once.",
			},
			func(p *Process) any { return &p.ApplyParallelRows },
		},
		{
			Field{
				Key: "qr_profiles_dir", Group: groupProcess, Env: "QR_PROFILES_DIR", Type: TypeString, MaxLen: 4096, Default: "",
				Help: "Folder whose presets/*.yaml are presets too.",
			},
			func(p *Process) any { return &p.ProfilesDir },
		},
		{
			Field{
				Key: "qr_entropy_status_file", Group: groupProcess, Env: "QR_ENTROPY_STATUS_FILE", Type: TypeString, MaxLen: 4096, Default: "",
				Help: "Accepted for qr-sampler's sake: no such file is written, /metrics and the health endpoint have what it holds.",
			},
			func(p *Process) any { return &p.EntropyStatusFile },
		},
		{
			Field{
				Key: "qr_sampler_perf_file", Group: groupProcess, Env: "QR_SAMPLER_PERF_FILE", Type: TypeString, MaxLen: 4096, Default: "",
				Help: "Accepted for qr-sampler's sake: no such file is written, /metrics has what it holds.",
			},
			func(p *Process) any { return &p.SamplerPerfFile },
		},
	}
}
