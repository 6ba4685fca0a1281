"""Writes stand-ins for the CUDA libraries that torch is linked with, so that it is imported where no GPU is.

usage: vllm-cuda.py SITE-PACKAGES/torch/lib

A stand-in has every symbol that torch's libraries want of the real one, under the version they ask for; each function
returns 1, an error in all of those interfaces. A CPU-only run calls none. A second run replaces what the first wrote.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

MARK = "STAND-INS.txt"
LIBRARY = re.compile(r"lib(cu|nv|nccl)")
# The driver's library is loaded by hand where it is wanted, never linked.
DRIVER = "libcuda.so.1"
PREFIX = re.compile(
    r"(cublas|cudnn|cufft|cusolver|cusparse|curand|p?nccl|nvrtc|nvJitLink|nvshmem|c[uU]?[fF]ile|cupti|nvtx)"
)


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(library):
    """Names of the libraries that this one is linked with."""
    return set(re.findall(r"NEEDED.*\[(.+?)\]", run("readelf", "-d", library)))


def versions(library):
    """Symbol versions wanted, by the library that they are wanted of."""
    wanted, current = {}, None
    for line in run("readelf", "-VW", library).splitlines():
        if file := re.search(r"File: (\S+)", line):
            current = file[1]
        elif current and (name := re.search(r"Name: (\S+)\s+Flags: .*Version: \d+$", line)):
            wanted.setdefault(current, set()).add(name[1])
    return wanted


def symbols(library, which):
    """(name, version) of the symbols, which is --undefined-only or --defined-only."""
    found = set()
    for line in run("nm", "-D", which, library).splitlines():
        name, _, version = line.split()[-1].partition("@")
        found.add((name, version.lstrip("@")))
    return found


class Survey:
    """What all of torch's libraries want, and who has none of it."""

    def __init__(self, folder):
        own = sorted(folder.glob("*.so*"))
        real = sorted(folder.glob("../../nvidia/*/lib/*.so*"))
        self.versions, self.undefined = {}, set()
        wanted = set()
        for library in own:
            wanted |= needed(library)
            for name, found in versions(library).items():
                self.versions.setdefault(name, set()).update(found)
            self.undefined |= symbols(library, "--undefined-only")
        defined = {name for library in own + real for name, _ in symbols(library, "--defined-only")}
        have = {library.name for library in own + real}
        self.missing = sorted(n for n in wanted - have - {DRIVER} if LIBRARY.match(n))
        # A symbol without a version may come of any library; one stand-in has them all.
        self.plain = sorted(n for n, v in self.undefined if not v and n not in defined and PREFIX.match(n))

    def of(self, name):
        """Symbols by version for the stand-in of that name; the version "" stands for none."""
        if name in self.versions:
            return {v: sorted(n for n, of in self.undefined if of == v) for v in sorted(self.versions[name])}
        first = next(n for n in self.missing if n not in self.versions)
        return {"": self.plain if name == first else []}


def build(folder, name, by_version):
    assembly = ["\t.text"]
    for symbol in sorted({s for found in by_version.values() for s in found}):
        assembly += [f"\t.globl {symbol}", f"\t.type {symbol},@function", f"{symbol}:"]
    assembly += ["\tmov $1,%eax", "\tret", '\t.section .note.GNU-stack,"",@progbits', ""]
    with tempfile.TemporaryDirectory() as scratch:
        source, script = pathlib.Path(scratch, "symbols.s"), pathlib.Path(scratch, "versions")
        source.write_text("\n".join(assembly))
        command = ["gcc", "-shared", "-nostdlib", "-fPIC", f"-Wl,-soname,{name}", "-o", str(folder / name), str(source)]
        if "" not in by_version:
            blocks = (f"{v} {{ {'global: ' + '; '.join(s) + ';' if s else ''} }};" for v, s in by_version.items())
            script.write_text("\n".join(blocks) + "\n")
            command.append(f"-Wl,--version-script={script}")
        run(*command)


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    mark = folder / MARK
    if mark.exists():
        for name in mark.read_text().split():
            (folder / name).unlink(missing_ok=True)
    survey = Survey(folder)
    mark.write_text("\n".join(survey.missing) + "\n")
    for name in survey.missing:
        build(folder, name, survey.of(name))


if __name__ == "__main__":
    main()
