package sampler

import "qr-gateway/sampler/param"

// Type is the JSON type of a field.
type Type = param.Type

// Field is one row of the parameter table.
type Field = param.Field

// The types a field can have.
const (
	TypeNumber  = param.TypeNumber
	TypeInteger = param.TypeInteger
	TypeString  = param.TypeString
	TypeBool    = param.TypeBool
	TypeObject  = param.TypeObject
)
