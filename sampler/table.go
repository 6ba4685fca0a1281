package sampler

// Type is the JSON type of a field.
type Type string

// The types a field can have.
const (
	TypeNumber  Type = "number"
	TypeInteger Type = "integer"
	TypeString  Type = "string"
	TypeBool    Type = "boolean"
)

// Field is one row of the parameter table: the only place where a parameter's name, range and meaning are written.
type Field struct {
	Key        string // request key, e.g. qr_alpha
	Standard   string // OpenAI field (or common extension) it stands for when the qr_ key is absent, or empty
	Env        string // environment variable, e.g. QR_ALPHA
	Type       Type
	Min, Max   float64  // inclusive, for numbers
	Enum       []string // for strings
	Nullable   bool
	Default    any
	Unit       string
	Help       string
	PerRequest bool
}
