package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The rules of the repository, as tests: what they say is wrong can be mended without knowing any tool.

const root = "../.."

// source is one Go file of the repository, parsed.
type source struct {
	path      string
	dir       string
	fset      *token.FileSet
	file      *ast.File
	test      bool
	generated bool
}

// parsed are all of them, read once.
var parsed = sync.OnceValues(parse)

func goFiles(t *testing.T) []source {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("only %d Go files found below %s", len(all), root)
	}
	return all
}

func parse() ([]source, error) {
	var all []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		all = append(all, source{
			path: rel, dir: filepath.ToSlash(filepath.Dir(rel)), fset: fset, file: file,
			test: strings.HasSuffix(path, "_test.go"), generated: ast.IsGenerated(file),
		})
		return err
	})
	return all, err
}

// layer is a top-level folder and what it may import of ours.
var layers = map[string][]string{
	"cmd":      {"cmd", "gateway", "backends", "sampler", "entropy", "configs", "filters"},
	"gateway":  {"gateway", "backends", "sampler", "entropy", "configs"},
	"configs":  {"configs", "sampler"},
	"backends": {"backends", "sampler", "entropy"},
	"sampler":  {"sampler"},
	"entropy":  {"entropy"},
	"filters":  {"filters", "sampler"},
}

func TestImportsPointOneWay(t *testing.T) {
	for _, s := range goFiles(t) {
		from, _, _ := strings.Cut(s.dir, "/")
		allowed, ok := layers[from]
		if !ok {
			t.Errorf("%s: top-level folder %s has no row in the layer table", s.path, from)
			continue
		}
		for _, imp := range s.file.Imports {
			to, ours := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), "qr-gateway/")
			to, _, _ = strings.Cut(to, "/")
			if ours && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s: %s may import %v only", s.path, imp.Path.Value, from, allowed)
			}
		}
	}
}

func TestCgoInOnePackage(t *testing.T) {
	for _, s := range goFiles(t) {
		for _, imp := range s.file.Imports {
			if imp.Path.Value == `"C"` && s.dir != "backends/llama/engine" {
				t.Errorf("%s imports \"C\": only backends/llama/engine may", s.path)
			}
		}
	}
}

// TestGatewayIsPureGo holds the promise that the server itself links no C.
func TestGatewayIsPureGo(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,CgoFiles,Standard", "./cmd/qr-gateway")
	cmd.Dir = root
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list dependencies: %v", err)
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p struct {
			ImportPath string
			CgoFiles   []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.CgoFiles) > 0 {
			t.Errorf("%s brings cgo into qr-gateway", p.ImportPath)
		}
	}
}

func TestEveryPackageHasOneDocComment(t *testing.T) {
	docs, packages := map[string]int{}, map[string]bool{}
	for _, s := range goFiles(t) {
		if s.test {
			continue
		}
		packages[s.dir] = true
		if s.file.Doc != nil && !s.generated {
			docs[s.dir]++
		}
	}
	for dir := range packages {
		if n := docs[dir]; n != 1 && !strings.HasSuffix(dir, "pb") {
			t.Errorf("%s has %d package comments, want 1", dir, n)
		}
	}
}

func TestNoInitAndNoSleepInTests(t *testing.T) {
	for _, s := range goFiles(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Name.Name == "init" && n.Recv == nil && !s.generated {
					t.Errorf("%s has an init function", s.path)
				}
			case *ast.SelectorExpr:
				if id, ok := n.X.(*ast.Ident); ok && s.test && id.Name == "time" && n.Sel.Name == "Sleep" {
					t.Errorf("%s: time.Sleep in a test: wait for the event, or use testing/synctest", s.fset.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

func TestPackageVariablesNeverChange(t *testing.T) {
	vars := map[string]map[string]bool{}
	all := goFiles(t)
	for _, s := range all {
		for _, d := range s.file.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR && !s.generated {
				noteVars(vars, s.dir, g)
			}
		}
	}
	for _, s := range all {
		ast.Inspect(s.file, func(n ast.Node) bool {
			a, ok := n.(*ast.AssignStmt)
			if !ok || a.Tok == token.DEFINE || s.generated {
				return true
			}
			for _, lhs := range a.Lhs {
				id, ok := lhs.(*ast.Ident)
				if ok && vars[s.dir][id.Name] && !local(s, id) {
					t.Errorf("%s: assigns package variable %s", s.fset.Position(a.Pos()), id.Name)
				}
			}
			return true
		})
	}
}

func noteVars(vars map[string]map[string]bool, dir string, g *ast.GenDecl) {
	if vars[dir] == nil {
		vars[dir] = map[string]bool{}
	}
	for _, spec := range g.Specs {
		for _, name := range spec.(*ast.ValueSpec).Names {
			if name.Name != "_" {
				vars[dir][name.Name] = true
			}
		}
	}
}

// local reports whether the function around id declares a variable of that name.
func local(s source, id *ast.Ident) (found bool) {
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || id.Pos() < f.Pos() || f.End() <= id.Pos() {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field: // parameters and results
				found = found || named(id, n.Names...)
			case *ast.ValueSpec:
				found = found || named(id, n.Names...)
			case *ast.AssignStmt:
				for _, lhs := range n.Lhs {
					other, ok := lhs.(*ast.Ident)
					found = found || n.Tok == token.DEFINE && ok && named(id, other)
				}
			case *ast.RangeStmt:
				for _, e := range []ast.Expr{n.Key, n.Value} {
					other, ok := e.(*ast.Ident)
					found = found || n.Tok == token.DEFINE && ok && named(id, other)
				}
			}
			return true
		})
	}
	return found
}

func named(id *ast.Ident, names ...*ast.Ident) bool {
	return slices.ContainsFunc(names, func(n *ast.Ident) bool { return n.Name == id.Name })
}

func TestSizes(t *testing.T) {
	const maxFile, maxFunc, maxMedian = 450, 80, 12
	var lengths []int
	for _, s := range goFiles(t) {
		if s.generated {
			continue
		}
		if n := s.fset.File(s.file.Pos()).LineCount(); n > maxFile {
			t.Errorf("%s has %d lines, over %d", s.path, n, maxFile)
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1
			if n > maxFunc {
				t.Errorf("%s: %s has %d lines, over %d", s.fset.Position(f.Pos()), f.Name.Name, n, maxFunc)
			}
			if !s.test {
				lengths = append(lengths, n)
			}
		}
	}
	slices.Sort(lengths)
	if m := lengths[len(lengths)/2]; m > maxMedian {
		t.Errorf("the median function has %d lines, over %d", m, maxMedian)
	}
}
