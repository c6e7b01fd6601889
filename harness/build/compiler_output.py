"""Reading what compilers print: short errors, and the resources of each kernel."""

from __future__ import annotations

import re
import shutil
import subprocess

from harness.records import KernelResources

MAX_ERRORS = 5

_NVCC_ERROR = re.compile(r"^(?P<file>[^\s(]+)\((?P<line>\d+)\): (?:catastrophic )?error\s*(?:#\S+)?: ?(?P<text>.*)$")
_GCC_ERROR = re.compile(r"^(?P<file>[^\s:]+):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)$")
_LINK_ERROR = re.compile(r"(undefined (?:symbol|reference).*)$")

_PTXAS_FUNCTION = re.compile(r"Compiling entry function '(?P<name>[^']+)'")
_PTXAS_SPILLS = re.compile(r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")
_PTXAS_USED = re.compile(r"Used (?P<registers>\d+) registers(?P<rest>.*)")
_PTXAS_SHARED = re.compile(r"(?P<bytes>\d+) bytes smem")


def short_errors(output: str) -> str:
    """The first few errors of nvcc or gcc, one a line as `file:line: text`; the output's end when none is
    recognised. The same text at the same place is given once."""
    errors: dict[str, None] = {}
    for line in output.splitlines():
        found = _NVCC_ERROR.match(line) or _GCC_ERROR.match(line)
        if found:
            errors.setdefault(f"{found['file'].rsplit('/', 1)[-1]}:{found['line']}: {found['text'].strip()}")
        elif link := _LINK_ERROR.search(line):
            errors.setdefault(link[1].strip())
    if not errors:
        return "\n".join(output.strip().splitlines()[-MAX_ERRORS:])
    lines = list(errors)
    more = [f"… and {len(lines) - MAX_ERRORS} more errors"] if len(lines) > MAX_ERRORS else []
    return "\n".join(lines[:MAX_ERRORS] + more)


def kernel_resources(output: str) -> tuple[KernelResources, ...]:
    """The kernels in a `ptxas -v` report, by their demangled names."""
    found: list[tuple[str, int, int, int, int]] = []
    name, stores, loads = "", 0, 0
    for line in output.splitlines():
        if entry := _PTXAS_FUNCTION.search(line):
            name, stores, loads = entry["name"], 0, 0
        elif spills := _PTXAS_SPILLS.search(line):
            stores, loads = int(spills["stores"]), int(spills["loads"])
        elif (used := _PTXAS_USED.search(line)) and name:
            shared = _PTXAS_SHARED.search(used["rest"])
            found.append((name, int(used["registers"]), int(shared["bytes"]) if shared else 0, stores, loads))
            name = ""
    names = _demangled([entry[0] for entry in found])
    return tuple(KernelResources(n, *entry[1:]) for n, entry in zip(names, found, strict=True))


def _demangled(names: list[str]) -> list[str]:
    """Names as written in the source, without parameters; unchanged where binutils is missing."""
    if not names or not shutil.which("c++filt"):
        return names
    process = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True)
    lines = process.stdout.splitlines()
    return lines if len(lines) == len(names) else names
