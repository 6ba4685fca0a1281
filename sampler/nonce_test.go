package sampler_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"testing"

	"qr-gateway/sampler"
)

func TestNonceVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/nonces.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Nonces []struct {
			Salt, Step, Nonce string
			Previous          string `json:"previous_token_id"`
			Hex               string `json:"nonce_hex"`
		}
	}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Nonces) != 36 {
		t.Errorf("%d vectors, want 36", len(all.Nonces))
	}
	for _, v := range all.Nonces {
		salt, err := hex.DecodeString(v.Salt)
		if err != nil {
			t.Fatal(err)
		}
		step, err := strconv.ParseUint(v.Step, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		previous, err := strconv.ParseInt(v.Previous, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if got := sampler.Nonce(salt, step, previous); strconv.FormatUint(got, 10) != v.Nonce || strconv.FormatUint(got, 16) != trimZeros(v.Hex) {
			t.Errorf("salt %s, step %s, previous %s: got %d, want %s", v.Salt, v.Step, v.Previous, got, v.Nonce)
		}
	}
}

func trimZeros(s string) string {
	for len(s) > 1 && s[0] == '0' {
		s = s[1:]
	}
	return s
}

func TestVerifyNonce(t *testing.T) {
	good := sampler.Record{Step: 1, Previous: 42, Nonce: "5b139f272bc8a450", Salt: "00000000000000000000000000000000"}
	if err := sampler.VerifyNonce(&good); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*sampler.Record){
		"nonce":    func(r *sampler.Record) { r.Nonce = "5b139f272bc8a451" },
		"salt":     func(r *sampler.Record) { r.Salt = "00000000000000000000000000000001" },
		"step":     func(r *sampler.Record) { r.Step = 2 },
		"previous": func(r *sampler.Record) { r.Previous = 43 },
	} {
		r := good
		change(&r)
		if err := sampler.VerifyNonce(&r); !errors.Is(err, sampler.ErrNonce) {
			t.Errorf("another %s: error %v", name, err)
		}
	}
	for name, change := range map[string]func(*sampler.Record){
		"no nonce":      func(r *sampler.Record) { r.Nonce = "" },
		"not a number":  func(r *sampler.Record) { r.Nonce = "zz" },
		"salt of words": func(r *sampler.Record) { r.Salt = "salt" },
	} {
		r := good
		change(&r)
		if err := sampler.VerifyNonce(&r); err == nil || errors.Is(err, sampler.ErrNonce) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
