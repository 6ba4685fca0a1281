// Package config turns a YAML file, environment variables and flags into one checked [Config]. A flag wins over the
// environment, the environment over the file, the file over the defaults. For the parameters of requests (qr_alpha and so
// on) the order is: request, preset of the request, environment, preset of the process, the model's defaults in the file,
// parameters of the file for all models, the parameter table.
//
// [Load] reads everything once, from a fresh reader each time, and returns a value that nobody changes afterwards; it
// keeps no state, so it is safe for concurrent use.
//
// Values of section.key are set in the environment as QR_SECTION_KEY, e.g. QR_SERVER_LISTEN. What is in a list is set in the
// file only, but for a model's path, which --model ID=PATH replaces. Unknown keys are errors; unknown variables that begin
// with QR_ are errors where they look like one of ours, else [Config.Warnings] has them.
package config

import (
	"time"

	"qr-gateway/configs/presets"
	"qr-gateway/sampler"
)

// Config is a whole configuration. It is read-only once loaded.
type Config struct {
	Server Server  `mapstructure:"server"`
	Log    Log     `mapstructure:"log"`
	Queue  Queue   `mapstructure:"queue"`
	Engine Engine  `mapstructure:"engine"`
	Models []Model `mapstructure:"models"`

	Records   Records   `mapstructure:"records"`
	Tasks     Tasks     `mapstructure:"tasks"`
	OpenWebUI OpenWebUI `mapstructure:"open_webui"`
	Redis     Redis     `mapstructure:"redis"`
	Link      Link      `mapstructure:"link"`
	Worker    Worker    `mapstructure:"worker"`
	Sidecar   Sidecar   `mapstructure:"sidecar"`

	Entropy    Entropy        `mapstructure:"entropy"`
	Presets    Presets        `mapstructure:"presets"`
	Preset     string         `mapstructure:"preset"`     // that requests to every model start from; QR_PRESET wins over it
	Parameters map[string]any `mapstructure:"parameters"` // of requests to every model, by their qr_ keys
	Settings   map[string]any `mapstructure:"process"`    // of the process, by the keys of sampler.ProcessFields without qr_

	// Load fills in what follows.
	Backends  []string          `mapstructure:"-"` // that a model may name
	Modelless bool              `mapstructure:"-"` // there need not be a model
	Process   sampler.Process   `mapstructure:"-"` // Settings, then the environment
	Library   presets.Library   `mapstructure:"-"` // the presets that a request may name
	Warnings  []string          `mapstructure:"-"` // what is not used, for the log
	Origins   map[string]string `mapstructure:"-"` // of the fields of Process that aren't at their defaults
}

// Presets says where presets come from.
type Presets struct {
	Dir    string `mapstructure:"dir"`    // folder of more presets; in the file, relative to the file's folder
	Compat bool   `mapstructure:"compat"` // the preset of the process wins over the environment, as in qr-sampler
}

// Server is the HTTP edge.
type Server struct {
	Listen       string        `mapstructure:"listen"`        // host:port
	BodyLimit    ByteSize      `mapstructure:"body_limit"`    // of a request body
	KeepAlive    time.Duration `mapstructure:"keep_alive"`    // between comments in a stream
	WriteTimeout time.Duration `mapstructure:"write_timeout"` // for one write; a client that reads nothing for so long loses its job
	DrainTimeout time.Duration `mapstructure:"drain_timeout"` // for running requests once the server is told to stop
	CORSOrigins  []string      `mapstructure:"cors_origins"`  // browsers' origins that may call; "*" is any; none is off
	PublicURL    string        `mapstructure:"public_url"`    // where people reach the server; empty: the address that each request used
}

// Records bounds the records of answers that are kept in memory.
type Records struct {
	Keep  int      `mapstructure:"keep"`  // of the newest answers; 0 keeps none
	Bytes ByteSize `mapstructure:"bytes"` // of all together
}

// Tasks says what becomes of clients' own calls, such as for the title of a chat.
type Tasks struct {
	Mode      string `mapstructure:"mode"`       // plain or same
	MaxTokens int    `mapstructure:"max_tokens"` // of one that sets no limit itself; 0 is the rest of the context
	Aliases   bool   `mapstructure:"aliases"`    // the model list has NAME:task beside each model
}

// Modes of tasks.
const (
	TasksPlain = "plain" // plain sampling by the standard fields, numbers from the operating system
	TasksSame  = "same"  // as any request
)

// OpenWebUI is what the model list says to Open WebUI.
type OpenWebUI struct {
	ModelInfo bool `mapstructure:"model_info"` // description, capabilities and suggested prompts, until somebody edits the model there
}

// Log is what goes to stderr.
type Log struct {
	Level  string `mapstructure:"level"`  // debug, info, warn or error
	Format string `mapstructure:"format"` // text or json
}

// Queue bounds the waiting line and the leases.
type Queue struct {
	Jobs         int           `mapstructure:"jobs"`           // waiting, in all
	Tokens       int           `mapstructure:"tokens"`         // prompt and answer of those waiting, in all
	JobsPerKey   int           `mapstructure:"jobs_per_key"`   // waiting, of one caller
	TokensPerKey int           `mapstructure:"tokens_per_key"` // of one caller
	Bytes        ByteSize      `mapstructure:"bytes"`          // of the requests waiting, in all
	BytesPerKey  ByteSize      `mapstructure:"bytes_per_key"`  // of one caller
	Age          time.Duration `mapstructure:"age"`            // a task that waited so long counts as a chat; 0 never
	WaitTimeout  time.Duration `mapstructure:"wait_timeout"`   // a request that waited so long is refused; 0 is no limit
	Lease        time.Duration `mapstructure:"lease"`          // a node unheard of for so long loses its job
	Heartbeat    time.Duration `mapstructure:"heartbeat"`      // at most half the lease
	Repeats      string        `mapstructure:"repeats"`        // join or refuse: what becomes of a request that is sent again with its Idempotency-Key
}

// What becomes of repeated requests.
const (
	RepeatsJoin   = "join"   // they get the answer of the first
	RepeatsRefuse = "refuse" // they are refused, and no answer is kept
)

// Engine is the child process of every llama model.
type Engine struct {
	Binary       string        `mapstructure:"binary"`        // empty: qr-engine beside the running program; in the file, relative to the file's folder
	WaitReady    time.Duration `mapstructure:"wait_ready"`    // how long a request waits for an engine that is being restarted
	StallTimeout time.Duration `mapstructure:"stall_timeout"` // a busy engine without a finished decode for so long is killed
}

// Backends that a model can name.
const (
	BackendLlama  = "llama"
	BackendOpenAI = "openai"
	BackendVLLM   = "vllm"
	BackendPeek   = "peek"
	BackendFake   = "fake"
)

// Model is one served model.
type Model struct {
	ID             string         `mapstructure:"id"` // as clients name it; case matters
	Backend        string         `mapstructure:"backend"`
	Path           string         `mapstructure:"path"`            // of the GGUF file; in the file, relative to the file's folder
	Context        int            `mapstructure:"context"`         // tokens per request; 0 is the model's own, at most 8192
	Workers        int            `mapstructure:"workers"`         // requests at once, each with a KV cache
	Threads        int            `mapstructure:"threads"`         // 0 is the number of cores
	Group          int            `mapstructure:"group"`           // candidates decoded in one batch, at most
	Chunk          int            `mapstructure:"chunk"`           // prompt tokens per decode
	GPULayers      int            `mapstructure:"gpu_layers"`      // -1 is all; a CPU build ignores it
	FlashAttention bool           `mapstructure:"flash_attention"` // off is faster for look-ahead on a CPU
	CanonicalCells bool           `mapstructure:"canonical_cells"` // the way candidates are evaluated leaves hardly a trace; slower
	KVType         string         `mapstructure:"kv_type"`         // f16 or f32
	Poll           int            `mapstructure:"poll"`            // busy-wait level of the threads, 0 to 100; 0 blocks
	Delay          time.Duration  `mapstructure:"delay"`           // of a fake model: between its tokens
	Name           string         `mapstructure:"name"`            // shown to people in the place of the id
	Description    string         `mapstructure:"description"`     // shown in the model list
	Prompts        []string       `mapstructure:"prompts"`         // suggested for the beginning of a chat, in Open WebUI
	Defaults       map[string]any `mapstructure:"defaults"`        // parameters of requests, by their qr_ keys
	Aliases        []string       `mapstructure:"aliases"`         // other ids that clients may name it by
	Replicas       []Replica      `mapstructure:"replicas"`        // backends that serve it; none: the model's own keys describe the only one
	Route          Route          `mapstructure:"route"`           // how one of them is picked

	// Of a server that requests are passed on to.
	URL           string            `mapstructure:"url"`            // below which its chat/completions is
	APIKey        string            `mapstructure:"api_key"`        // for it
	APIKeyFile    string            `mapstructure:"api_key_file"`   // holds the key; in the file, relative to the file's folder
	UpstreamModel string            `mapstructure:"upstream_model"` // the model's name there; empty: its id
	Headers       map[string]string `mapstructure:"headers"`        // sent with every request
	Timeouts      Timeouts          `mapstructure:"timeouts"`
	QR            string            `mapstructure:"qr"` // refuse or pass: what becomes of qr_ parameters
	VLLM          VLLM              `mapstructure:"vllm"`
	Peek          Peek              `mapstructure:"peek"`

	// Load fills in what follows.
	Members []Member          `mapstructure:"-"` // the replicas, each as a model of its own
	Params  sampler.Params    `mapstructure:"-"` // what a request starts from
	Origins map[string]string `mapstructure:"-"` // of the fields of Params that were set, in words, by key
}

// Default is the configuration of an empty file: all but the models.
func Default() Config {
	return Config{
		Server: Server{
			Listen: "127.0.0.1:8080", BodyLimit: 10 << 20, KeepAlive: 10 * time.Second,
			WriteTimeout: 30 * time.Second, DrainTimeout: 30 * time.Second, CORSOrigins: []string{},
		},
		Log: Log{Level: "info", Format: "text"},
		Queue: Queue{
			Jobs: 256, Tokens: 2_000_000, JobsPerKey: 64, TokensPerKey: 1_000_000, Bytes: 256 << 20, BytesPerKey: 64 << 20,
			Age: 30 * time.Second, WaitTimeout: 10 * time.Minute, Lease: 6 * time.Second, Heartbeat: 2 * time.Second, Repeats: RepeatsJoin,
		},
		Records: Records{Keep: 256, Bytes: 64 << 20}, Tasks: Tasks{Mode: TasksPlain, MaxTokens: 512}, OpenWebUI: OpenWebUI{ModelInfo: true},
		Redis: Redis{Name: "qr-gateway", Tokens: TokensLink}, Worker: Worker{Gateways: []string{}, Patience: 6 * time.Second},
		Sidecar: defaultSidecar(),
		Engine:  Engine{WaitReady: 30 * time.Second, StallTimeout: time.Minute},
		Entropy: Entropy{Default: SystemSource, Allow: []string{}},
		Process: sampler.ProcessDefaults(), Backends: []string{BackendLlama, BackendVLLM, BackendOpenAI, BackendPeek, BackendFake},
	}
}

// DefaultModel is what a model is that the file says nothing more of.
func DefaultModel(id string) Model {
	return Model{
		ID: id, Backend: BackendLlama, Workers: 4, Group: 8, Chunk: 256, GPULayers: -1, KVType: "f16", Prompts: []string{},
		Aliases: []string{}, Route: defaultRoute(), Params: sampler.Defaults(),
		Headers: map[string]string{}, Timeouts: defaultTimeouts(), QR: QRRefuse, VLLM: defaultVLLM(), Peek: defaultPeek(),
	}
}
