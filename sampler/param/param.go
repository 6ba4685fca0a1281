// Package param describes parameters: what a value may be, how it is written, and how one that can't be taken is refused. The tables that
// use it are in sampler (what a request sets) and in the packages whose parameters they hold. Its values are read-only once made.
package param

// Type is the JSON type of a field.
type Type string

// The types a field can have.
const (
	TypeNumber  Type = "number"
	TypeInteger Type = "integer"
	TypeString  Type = "string"
	TypeBool    Type = "boolean"
	TypeObject  Type = "object"
)

// Field is one row of a parameter table: the only place where a parameter's name, range and meaning are written.
type Field struct {
	Key        string   // request key, e.g. qr_alpha
	Aliases    []string // other request keys that mean the same, e.g. qr_fixed_temperature
	Standard   string   // OpenAI field (or common extension) it stands for when the qr_ key is absent, or empty
	Env        string   // environment variable, e.g. QR_ALPHA; each alias is one too, in upper case
	Group      string   // heading of the documentation
	Type       Type
	Min, Max   float64  // inclusive, for numbers
	MinOpen    bool     // Min itself is not taken
	OrZero     bool     // 0, which is off, is taken although it lies outside the range
	Enum       []string // for strings; none: any text of at most MaxLen bytes
	MaxLen     int      // bytes of a text, or entries of an object
	Nullable   bool
	Default    any
	Unit       string
	Help       string
	PerRequest bool // false: set by the process only
	Secret     bool // its value is never shown
}

// Values reads parameters by key. Asking for a key that is not in the table, or is of another type, is a mistake of the program and
// returns the zero value.
type Values interface {
	// Number reads a number, an integer, or a flag as 1 and 0.
	Number(key string) float64
	Text(key string) string
}
