package exec

import (
	"archive/zip"
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/entropytest"
)

func TestPythonSuite(t *testing.T) {
	entropytest.Run(t, func(t *testing.T) entropy.Source {
		s, _ := open(t, class(t, "lab:Good"))
		return s
	})
}

func TestPythonClass(t *testing.T) {
	s, log := open(t, class(t, "lab:Good"))
	b := draw(t, s, 20480)
	if b.Device != "bench 7" || b.Class != entropy.ClassUnknown || !b.Echoed || b.Shots != 1 {
		t.Errorf("got %+v", b)
	}
	if b.ServerTime.Before(b.Requested) || b.ServerTime.After(b.Arrived) {
		t.Errorf("made at %v, requested %v, arrived %v", b.ServerTime, b.Requested, b.Arrived)
	}
	c, err := s.Probe(t.Context())
	if err != nil || c.Details["program"] != "lab_good" || c.Details["source_class"] != "Good" {
		t.Errorf("got %+v, error %v", c, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	log.await(t, "lab closed")
	if strings.Count(log.String(), "lab closed") != 1 {
		t.Error("closed more than once")
	}
}

func TestPythonMakesTheSource(t *testing.T) {
	for spec, config := range map[string]string{
		"lab:Configured": `{"label": "good"}`,
		"lab:Keywords":   `{"value": 7, "size": 3}`,
		"lab:Good":       "",
		"lab:Bare":       "{}",
		"lab:factory":    "",
	} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			cfg := class(t, spec)
			cfg.PythonConfig = config
			s, _ := open(t, cfg)
			b := draw(t, s, 100)
			if spec == "lab:Keywords" && b.Bytes[99] != 7 {
				t.Errorf("got %x", b.Bytes)
			}
			c, err := s.Probe(t.Context())
			if err != nil || spec == "lab:Configured" && c.Details["program"] != "lab_good" {
				t.Errorf("got %+v, error %v", c, err)
			}
		})
	}
}

// What a source prints, or the C library or a child process of it, must not get between the frames.
func TestPythonPrints(t *testing.T) {
	s, log := open(t, class(t, "lab:Prints"))
	for n := 1; n < 20; n++ {
		draw(t, s, n*100)
	}
	for _, text := range []string{"in the constructor", "a print", "the descriptor", "a child process"} {
		log.await(t, text)
	}
}

// A source that does wrong fails its draw alone: the program stays.
func TestPythonErrors(t *testing.T) {
	for spec, want := range map[string]struct {
		kind entropy.Kind
		text string
	}{
		"lab:Raises":  {entropy.KindTransport, "ValueError: the diode is cold: ünïcode"},
		"lab:Short":   {entropy.KindProtocol, "get_random_bytes(13) returned 12 bytes"},
		"lab:Long":    {entropy.KindProtocol, "returned 14 bytes"},
		"lab:Text":    {entropy.KindProtocol, "returned str, not bytes"},
		"lab:Nothing": {entropy.KindProtocol, "returned NoneType, not bytes"},
	} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			s, log := open(t, class(t, spec))
			fails(t, s, 13, want.kind, want.text)
			draw(t, s, 14)
			if n := strings.Count(log.String(), "program started"); n != 1 {
				t.Errorf("started %d times", n)
			}
		})
	}
}

// A source that ends or hangs takes its program with it, and the next draw is served by a new one.
func TestPythonEndsOrHangs(t *testing.T) {
	for spec, kind := range map[string]entropy.Kind{
		"lab:Sleeps":   entropy.KindTimeout,
		"lab:Deaf":     entropy.KindTimeout,
		"lab:Swallows": entropy.KindTimeout,
		"lab:Dies":     entropy.KindTransport,
		"lab:Exits":    entropy.KindTransport,
	} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			cfg := class(t, spec)
			cfg.Timeout = 500 * time.Millisecond
			s, log := open(t, cfg)
			pid := pidIn(t, log)
			fails(t, s, 13, kind, "")
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("the program is there: %v", err)
			}
			recovers(t, s)
		})
	}
}

// A forked copy of the host answers nothing, and ends with it.
func TestPythonForks(t *testing.T) {
	s, log := open(t, class(t, "lab:Forks"))
	for range 5 {
		draw(t, s, 13)
		draw(t, s, 100)
	}
	if n := strings.Count(log.String(), "program started"); n != 1 {
		t.Errorf("started %d times", n)
	}
}

// All processes that a source has started end with it.
func TestPythonSpawns(t *testing.T) {
	s, _ := open(t, class(t, "lab:Spawns"))
	pid, err := strconv.Atoi(draw(t, s, 10).Device)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the child of the source is not there: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// It was killed; who collects it is the system's affair, so a zombie counts as gone.
	for deadline := time.Now().Add(10 * time.Second); alive(pid); {
		if time.Now().After(deadline) {
			t.Fatal("the child of the source is still there")
		}
		<-time.After(10 * time.Millisecond) // a busy system takes a moment to do away with it
	}
}

// alive reports whether a process runs.
func alive(pid int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	_, text2, _ := strings.Cut(string(text), ") ")
	return text2 == "" || (text2[0] != 'Z' && text2[0] != 'X')
}

func TestPythonAvailability(t *testing.T) {
	s, _ := open(t, class(t, "lab:Absent"))
	if _, err := s.Probe(t.Context()); entropy.KindOf(err) != entropy.KindTransport || !strings.Contains(err.Error(), "lab_good is not available") {
		t.Errorf("error %v", err)
	}
}

func TestPythonRefuses(t *testing.T) {
	for spec, text := range map[string]string{
		"no_such_module:Class": "No module named 'no_such_module'",
		"lab:NoClass":          "module lab has no NoClass",
		"lab:NoMethods":        "no method get_random_bytes and no close",
		"lab:Broken":           "OSError: no such port",
		"lab:constant":         "is no class and no function",
		"lab:Moody":            "OSError: nobody knows",
	} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			s, err := Open(t.Context(), "test", class(t, spec), newLogged().deps())
			if err == nil {
				_ = s.Close()
				t.Fatal("it was opened")
			}
			if entropy.KindOf(err) != entropy.KindConfig || !strings.Contains(err.Error(), text) {
				t.Errorf("error %q has no %q", err, text)
			}
		})
	}
}

func TestPythonConfigMustBeAnObject(t *testing.T) {
	cfg := class(t, "lab:Keywords")
	cfg.PythonConfig = "[7]"
	_, err := Open(t.Context(), "test", cfg, newLogged().deps())
	if err == nil || !strings.Contains(err.Error(), "must be a JSON object") {
		t.Errorf("error %v", err)
	}
}

// wheel writes an installed package with an entry point, as pip would lay it out, into a wheel; a wheel can be imported from.
func wheel(t *testing.T, points string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lab_source-1.0-py3-none-any.whl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(f)
	lab, err := os.ReadFile(filepath.Join("testdata", "sources", "lab.py"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"lab_source.py":                             string(lab),
		"lab_source-1.0.dist-info/METADATA":         "Metadata-Version: 2.1\nName: lab-source\nVersion: 1.0\n",
		"lab_source-1.0.dist-info/WHEEL":            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"lab_source-1.0.dist-info/RECORD":           "",
		"lab_source-1.0.dist-info/entry_points.txt": points,
	} {
		part, err := w.Create(name)
		if err == nil {
			_, err = part.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// A source that is installed as a plug-in of the reference runs by its name.
func TestPythonEntryPoint(t *testing.T) {
	points := "[qr_sampler.entropy_sources]\nlab = lab_source:Configured\nother = lab_source:NoSuch\n"
	cfg := class(t, "lab:Good")
	cfg.PythonClass, cfg.PythonEntryPoint, cfg.PythonConfig = "", "lab", `{"label": "wheel"}`
	cfg.Dir = ""
	cfg.Env = []string{"PYTHONPATH=" + wheel(t, points)}
	s, _ := open(t, cfg)
	draw(t, s, 20480)
	if c, err := s.Probe(t.Context()); err != nil || c.Details["program"] != "lab_wheel" {
		t.Errorf("got %+v, error %v", c, err)
	}
	for name, text := range map[string]string{
		"absent": "no entry point 'absent' in the group qr_sampler.entropy_sources; installed: lab, other",
		"other":  "has no attribute 'NoSuch'",
	} {
		cfg.PythonEntryPoint = name
		if _, err := Open(t.Context(), "test", cfg, newLogged().deps()); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// Installed by pip into an environment of its own, the host and a plug-in are a command like any other.
func TestPythonInstalled(t *testing.T) {
	dir := t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := osexec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	run(python(t), "-m", "venv", "--without-pip", dir)
	inside := filepath.Join(dir, "bin", "python")
	run(python(t), "-m", "pip", "--python", inside, "install", "--quiet", "--no-index", "--no-deps", wheel(t, "[qr_sampler.entropy_sources]\nlab = lab_source:Good\n"))
	hostDir, err := filepath.Abs(filepath.Join("python", "src"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := quick()
	cfg.Command = []string{inside, "-m", "qr_exec_source", "--entry-point", "lab", "--class", "jit", "--max-draw", "1000"}
	cfg.Env = []string{"PYTHONPATH=" + hostDir}
	s, _ := open(t, cfg)
	if b := draw(t, s, 2500); b.Class != entropy.ClassJIT || b.Shots != 3 || b.Device != "bench 7" {
		t.Errorf("got %+v", b)
	}
}

// The package's own tests.
func TestPythonPackage(t *testing.T) {
	cmd := osexec.CommandContext(t.Context(), python(t), "-m", "unittest", "discover", "-s", "tests", "-v")
	cmd.Dir = "python"
	cmd.Env = append(os.Environ(), "PYTHONPATH=src", "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// What was laid out for the host is taken away again.
func TestPythonLeavesNoFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	s, _ := open(t, class(t, "lab:Good"))
	if n := len(must(os.ReadDir(dir))); n != 1 {
		t.Errorf("%d files", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), "test", class(t, "lab:Broken"), newLogged().deps()); err == nil {
		t.Error("it was opened")
	}
	if left := must(os.ReadDir(dir)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
