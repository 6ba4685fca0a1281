package config_test

// refusal is a configuration that must not load.
type refusal struct {
	name, yaml string
	env, args  []string
}

const fake = "\nmodels: [{id: m, backend: fake}]\n"

func refusals() []refusal {
	return append(append(fileRefusals(), modelRefusals()...), otherRefusals()...)
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
		{name: "ranges", yaml: "models: [{id: a, path: x, workers: 0, chunk: 32, group: 65, poll: 101, context: 5, kv_type: q4_0}]"},
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
		{name: "model flag without path", yaml: fake, args: []string{"--model", "m"}},
		{name: "model flag for an unknown model", yaml: "models: [{id: smollm2, path: x}]", args: []string{"--model", "smollm=x"}},
		{name: "bad flag value", yaml: fake, args: []string{"--log-level", "loud"}},
	}
}
