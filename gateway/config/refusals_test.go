package config_test

import "slices"

// refusal is a configuration that must not load.
type refusal struct {
	name, yaml string
	env, args  []string
}

const fake = "\nmodels: [{id: m, backend: fake}]\n"

func refusals() []refusal {
	return slices.Concat(fileRefusals(), modelRefusals(), otherRefusals(), sourceRefusals(), presetRefusals(), upstreamRefusals(), samplingRefusals())
}

func fileRefusals() []refusal {
	return []refusal{
		{name: "unknown section", yaml: "sever: {listen: 'a:1'}" + fake},
		{name: "unknown key", yaml: "server: {lsiten: 'a:1'}" + fake},
		{name: "unknown key, nothing near", yaml: "queue: {colour: red}" + fake},
		{name: "dotted key", yaml: "server.listen: 'a:1'" + fake},
		{name: "section is a value", yaml: "server: 5" + fake},
		{name: "bare number as duration", yaml: "server: {keep_alive: 10}" + fake},
		{name: "text as duration", yaml: "server: {keep_alive: soon}" + fake},
		{name: "zero without unit", yaml: "queue: {wait_timeout: 0}" + fake},
		{name: "bare number as size", yaml: "server: {body_limit: 1000000}" + fake},
		{name: "number as text", yaml: "server: {listen: 8080}" + fake},
		{name: "text as number", yaml: "queue: {jobs: many}" + fake},
		{name: "fraction as number", yaml: "queue: {jobs: 1.5}" + fake},
		{name: "text as list", yaml: "server: {cors_origins: 'https://a.example'}" + fake},
		{name: "no port", yaml: "server: {listen: localhost}" + fake},
		{name: "zero duration", yaml: "server: {keep_alive: 0s}" + fake},
		{name: "heartbeat over half the lease", yaml: "queue: {heartbeat: 4s}" + fake},
		{name: "limit of zero", yaml: "queue: {jobs: 0, jobs_per_key: -1}" + fake},
		{name: "log level", yaml: "log: {level: loud}" + fake},
		{name: "origin", yaml: "server: {cors_origins: [chat.example.org]}" + fake},
		{name: "duplicate key", yaml: "server: {listen: 'a:1', listen: 'b:1'}" + fake},
		{name: "keys that differ by case", yaml: "server: {listen: 'a:1', Listen: 'b:1'}\nmodels: [{id: a, backend: fake, defaults: {qr_alpha: 0.5, QR_ALPHA: 0.6}}]"},
		{name: "a list", yaml: "- id: a"},
		{name: "broken yaml", yaml: "server: {listen: 'a:1'" + fake},
		{name: "several at once", yaml: "server: {keep_alive: 0s}\nlog: {level: loud}\nmodels: [{backend: magic}]"},
	}
}

func modelRefusals() []refusal {
	return []refusal{
		{name: "no models", yaml: "log: {level: info}"},
		{name: "models as a map", yaml: "models: {a: {path: x}}"},
		{name: "model as text", yaml: "models: [a]"},
		{name: "two models with one id", yaml: "models: [{id: a, path: x}, {id: b, path: x}, {id: a, path: y}]"},
		{name: "no id", yaml: "models: [{path: x}]"},
		{name: "id with a space", yaml: "models: [{id: a b, path: x}]"},
		{name: "no path", yaml: "models: [{id: a}]"},
		{name: "unknown model key", yaml: "models: [{id: a, path: x, worker: 2}]"},
		{name: "ranges", yaml: "models: [{id: a, path: x, workers: 0, chunk: 32, group: 65, poll: 101, delay: -1s, context: 5, kv_type: q4_0}]"},
		{name: "unknown key of a replica", yaml: "models: [{id: a, backend: fake, replicas: [{name: x, wieght: 2}, {name: y, id: b}]}]"},
		{name: "replicas as a map", yaml: "models: [{id: a, backend: fake, replicas: {x: {}}}]"},
		{name: "replica as text", yaml: "models: [{id: a, backend: fake, replicas: [x]}]"},
		{name: "types of a replica", yaml: "models: [{id: a, backend: fake, replicas: [{name: x, workers: yes}, {name: y, path: 5}, {name: z, kv_type: [f16]}]}]"},
		{name: "weight as text", yaml: "models: [{id: a, backend: fake, replicas: [{name: x, weight: heavy}]}]"},
		{name: "replicas", yaml: "models: [{id: a, backend: fake, replicas: [{name: x, workers: 0}, {weight: 0}, {name: x, backend: magic}, {name: a b, weight: .nan}, {name: y, backend: llama}]}]"},
		{name: "route", yaml: "models: [{id: a, backend: fake, route: {tries: 0, sticky_load: 1.5, breaker: {failures: 0, window: 10ms, open: 0s}}}]"},
		{name: "unknown key of a route", yaml: "models: [{id: a, backend: fake, route: {trys: 2, breaker: {fails: 1}}}]"},
		{name: "aliases", yaml: "models: [{id: a, backend: fake, aliases: [b, c, '', d e, c]}, {id: b, backend: fake, aliases: [c, a]}]"},
		{name: "alias as text", yaml: "models: [{id: a, backend: fake, aliases: b}]"},
		{name: "number as id", yaml: "models: [{id: 5, path: x}]"},
		{name: "number as flag", yaml: "models: [{id: a, path: x, flash_attention: 1}]"},
		{name: "yes as number", yaml: "models: [{id: a, path: x, workers: yes}]"},
		{name: "unknown parameter", yaml: "models: [{id: a, path: x, defaults: {qr_alhpa: 1}}]"},
		{name: "parameter out of range", yaml: "models: [{id: a, path: x, defaults: {qr_alpha: 2, qr_lookahead_k: 0}}]"},
		{name: "alpha and a wave", yaml: "models: [{id: a, path: x, defaults: {qr_alpha: 0.1, qr_wave_period: 8}}]"},
		{name: "chunk between steps", yaml: "models: [{id: a, path: x, chunk: 96}]"},
		{name: "parameter of the wrong type", yaml: "models: [{id: a, path: x, defaults: {qr_curve: 3}}]"},
	}
}

func otherRefusals() []refusal {
	return []refusal{
		{name: "variable of a section", yaml: fake, env: []string{"QR_SERVER_LISTN=a:1"}},
		{name: "misspelt parameter variable", yaml: fake, env: []string{"QR_ALPAH=1"}},
		{name: "variables for alpha and a wave", yaml: fake, env: []string{"QR_ALPHA=0.5", "QR_WAVE_PERIOD=8"}},
		{name: "variable out of range", yaml: fake, env: []string{"QR_ALPHA=2"}},
		{name: "variable of the wrong type", yaml: fake, env: []string{"QR_QUEUE_JOBS=many", "QR_SERVER_KEEP_ALIVE=5"}},
		{name: "variable of a section out of range", yaml: fake, env: []string{"QR_QUEUE_JOBS=0"}},
		{name: "model flag without path", yaml: fake, args: []string{"--model", "m"}},
		{name: "model flag for an unknown model", yaml: "models: [{id: smollm2, path: x}]", args: []string{"--model", "smollm=x"}},
		{name: "bad flag value", yaml: fake, args: []string{"--log-level", "loud"}},
	}
}

func sourceRefusals() []refusal {
	sources := func(text string) string { return fake + "entropy: {sources: [" + text + "]}" }
	instances := func(text string) []string { return []string{"QR_ENTROPY_SOURCE_INSTANCES=" + text} }
	return []refusal{
		{name: "sources as a map", yaml: fake + "entropy: {sources: {a: {type: mock}}}"},
		{name: "source without a name", yaml: sources("{type: mock}")},
		{name: "source name", yaml: sources("{name: 'a b', type: mock}")},
		{name: "source without a type", yaml: sources("{name: a}")},
		{name: "unknown type", yaml: sources("{name: a, type: dice}")},
		{name: "unknown option", yaml: sources("{name: a, type: mock, sead: 5}")},
		{name: "option of the wrong type", yaml: sources("{name: a, type: mock, seed: many}")},
		{name: "two sources with one name", yaml: sources("{name: a, type: mock}, {name: b, type: mock}, {name: a, type: timing}")},
		{name: "unknown policy", yaml: sources("{name: a, type: mock, policy: hope}")},
		{name: "fallback without the policy", yaml: sources("{name: a, type: mock, fallback: system}")},
		{name: "policy without a fallback", yaml: sources("{name: a, type: mock, policy: fallback}")},
		{name: "fallback to nothing", yaml: sources("{name: a, type: mock, policy: fallback, fallback: b}")},
		{name: "ring", yaml: sources("{name: a, type: mock, policy: fallback, fallback: b}, {name: b, type: mock, policy: fallback, fallback: a}")},
		{name: "fallback to itself", yaml: sources("{name: a, type: mock, policy: fallback, fallback: a}")},
		{name: "unknown default", yaml: fake + "entropy: {default: quantum}"},
		{name: "unknown allowed source", yaml: fake + "entropy: {allow: [system, quantum]}"},
		{name: "default not allowed", yaml: sources("{name: a, type: mock}") + "\n", env: []string{"QR_ENTROPY_ALLOW=a"}},
		{name: "source of a model", yaml: "models: [{id: m, backend: fake, defaults: {qr_entropy_source: dice}}]"},
		{name: "source of the environment", yaml: fake, env: []string{"QR_ENTROPY_SOURCE_TYPE=dice"}},
		{name: "instances are no JSON", yaml: fake, env: instances("lane_a")},
		{name: "instance is no object", yaml: fake, env: instances(`{"a": 5}`)},
		{name: "instance without a type", yaml: fake, env: instances(`{"a": {}}`)},
		{name: "instance of an unknown type", yaml: fake, env: instances(`{"a": {"type": "nope"}}`)},
		{name: "instance named as a type", yaml: fake, env: instances(`{"system": {"type": "quantum_grpc"}}`)},
		{name: "instance with another key", yaml: fake, env: instances(`{"a": {"type": "quantum_grpc", "cb_window_size": 1}}`)},
		{name: "instance with a bad value", yaml: fake, env: instances(`{"a": {"type": "quantum_grpc", "grpc_timeout_ms": -1}}`)},
		{name: "address of the environment", yaml: fake, env: []string{"QR_GRPC_SERVER_ADDRESS=http://x"}},
		{name: "key with a control character", yaml: fake, env: []string{"QR_GRPC_API_KEY=se\ncret"}},
	}
}

func presetRefusals() []refusal {
	return []refusal{
		{name: "unknown preset of the file", yaml: fake + "preset: calm"},
		{name: "unknown preset of the environment", yaml: fake, env: []string{"QR_PRESET=calm"}},
		{name: "preset as a number", yaml: fake + "preset: 5"},
		{name: "folder of presets", yaml: fake + "presets: {dir: nowhere}"},
		{name: "compat as text", yaml: fake, env: []string{"QR_PRESETS_COMPAT=perhaps"}},
		{name: "unknown key of presets", yaml: fake, env: []string{"QR_PRESETS_FOLDER=x"}},
		{name: "unknown key of the process", yaml: fake + "process: {grpc_mod: unary}"},
		{name: "value of the process", yaml: fake + "process: {grpc_mode: smoke, cb_window_size: 0}"},
		{name: "variable of the process", yaml: fake, env: []string{"QR_FALLBACK_MODE=System", "QR_CB_WINDOW_SIZE=many"}},
		{name: "windows of the breaker", yaml: fake, env: []string{"QR_CB_RECOVERY_WINDOW_S=90"}},
		{name: "one variable twice", yaml: fake, env: []string{"QR_TOP_K=1", "qr_top_k=2"}},
		{name: "one parameter twice", yaml: fake, env: []string{"QR_TEMPERATURE=1", "QR_FIXED_TEMPERATURE=0.5"}},
		{name: "parameters of the file", yaml: fake + "parameters: {qr_top_k: many, qr_tpo_p: 1, qr_grpc_mode: unary}"},
		{name: "parameters as a list", yaml: fake + "parameters: [1]"},
		{name: "parameter of a request in the process", yaml: fake + "process: {top_k: 5, qr_top_p: 1}"},
		{name: "calibration of too much", yaml: fake + "parameters: {qr_sample_count: 1000000, qr_zscore_calibration_samples: 10000}"},
		{name: "fields that contradict", yaml: fake, env: []string{"QR_EDT_MIN_TEMP=3"}},
		{name: "amplifier for look-ahead", yaml: fake + "parameters: {qr_alpha: 0.3, qr_amplifier: server}"},
	}
}
