package config

import (
	"maps"
	"reflect"
	"strings"
	"time"

	"qr-gateway/sampler"
)

// Schema is the JSON Schema (draft 2020-12) of the configuration file. It says which keys there are, their types, and the ranges of
// parameters; what depends on several keys is for [Config.Validate].
func Schema() map[string]any {
	root := object(reflect.TypeFor[Config](), reflect.ValueOf(Default()))
	properties := root["properties"].(map[string]any)
	properties["parameters"] = parameterKeys()
	properties["process"] = processKeys()
	maps.Copy(root, map[string]any{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"$id":         "urn:qr-gateway:configuration",
		"title":       "Configuration of qr-gateway",
		"description": "The YAML file of qr-gateway serve --config. Every key may be left out or be null.",
	})
	return root
}

// object describes a struct. Keys that it doesn't have are refused, unless it takes any.
func object(t reflect.Type, defaults reflect.Value) map[string]any {
	properties := map[string]any{}
	closed := true
	for i := range t.NumField() {
		switch tag := t.Field(i).Tag.Get("mapstructure"); tag {
		case "-":
		case ",remain":
			closed = false
		default:
			properties[tag] = orNull(property(t.Field(i).Type, defaults.Field(i)))
		}
	}
	if t == reflect.TypeFor[Model]() {
		properties["defaults"] = parameterKeys()
	}
	out := map[string]any{"type": []string{"object", "null"}, "properties": properties}
	if closed {
		out["additionalProperties"] = false
	}
	return out
}

func property(t reflect.Type, value reflect.Value) map[string]any {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return map[string]any{"type": "string", "pattern": `^\s*[+-]?([0-9.]+(ns|us|µs|μs|ms|s|m|h))+\s*$`, "default": value.Interface().(time.Duration).String()}
	case t == reflect.TypeFor[ByteSize]():
		return map[string]any{"type": "string", "pattern": `^\s*[0-9.eE+]+\s*(B|KB|MB|GB|KiB|MiB|GiB)\s*$`, "default": value.Interface().(ByteSize).String()}
	case t == reflect.TypeFor[Model]():
		return entry(t, reflect.ValueOf(DefaultModel("")), "id")
	case t == reflect.TypeFor[Replica]():
		return replicaEntry()
	case t == reflect.TypeFor[EntropySource]():
		return entry(t, reflect.ValueOf(EntropySource{}), "name", "type")
	}
	switch kind := t.Kind(); {
	case kind == reflect.Struct:
		return object(t, value)
	case kind == reflect.Slice:
		return map[string]any{"type": "array", "items": property(t.Elem(), reflect.Zero(t.Elem()))}
	case kind == reflect.Bool:
		return map[string]any{"type": "boolean", "default": value.Interface()}
	case kind == reflect.Int:
		return map[string]any{"type": "integer", "default": value.Interface()}
	case kind == reflect.Float64:
		return map[string]any{"type": "number", "default": value.Interface()}
	case kind == reflect.Map:
		return map[string]any{"type": "object"}
	}
	return map[string]any{"type": "string", "default": value.Interface()}
}

// entry is one of a list, with the keys that it must have.
func entry(t reflect.Type, defaults reflect.Value, required ...string) map[string]any {
	out := object(t, defaults)
	out["type"], out["required"] = "object", required
	return out
}

// replicaEntry is a replica: its own keys, and those of a model that describe an engine or a server, which have no defaults here.
func replicaEntry() map[string]any {
	properties := map[string]any{}
	for key, t := range replicaKeys() {
		of := property(t, reflect.Zero(t))
		delete(of, "default")
		properties[key] = orNull(of)
	}
	properties["weight"].(map[string]any)["default"] = 1.0
	return map[string]any{"type": "object", "required": []string{"name"}, "properties": properties, "additionalProperties": false}
}

// orNull lets a key have no value.
func orNull(s map[string]any) map[string]any {
	if kind, ok := s["type"].(string); ok {
		s["type"] = []string{kind, "null"}
	}
	return s
}

// parameterKeys are those of requests, which the file may also write as text.
func parameterKeys() map[string]any {
	properties := map[string]any{}
	for _, f := range sampler.Fields() {
		for _, key := range append([]string{f.Key}, f.Aliases...) {
			properties[key] = f.Schema()
		}
	}
	return map[string]any{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
}

// processKeys are those of the process, without their prefix.
func processKeys() map[string]any {
	properties := map[string]any{}
	for _, f := range sampler.ProcessFields() {
		properties[strings.TrimPrefix(f.Key, settingPrefix)] = f.Schema()
	}
	return map[string]any{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
}
