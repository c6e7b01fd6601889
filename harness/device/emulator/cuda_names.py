"""Names that CUDA's headers and torch's CUDA half declare: that the emulator lacks one is no fault of a source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from harness.device.emulator import paths

_PREFIXES = re.compile(r"(?:cuda|cu|curand|cublas|cudnn|cufft|cusparse|nvrtc)_?[A-Z]\w+|CU[A-Z]?\w+|__\w+")
_COMPILERS_OWN = re.compile(r"__nv\w+")  # built-in functions of nvcc, which no header declares
# Without a mask they are gone since compute capability 7.0, and nvcc refuses them.
_WITHOUT_MASK = re.compile(r"__(?:shfl(?:_up|_down|_xor)?|any|all|ballot)")
_DECLARED = r"(?:_DECL(?:__)?|__device__|__device_builtin__|CUDARTAPI|CUDAAPI)\b[^;{{}}()]*?\b{name}\s*\("
# What torch's CUDA headers define as macros, which have no namespace.
_TORCHS = re.compile(r"(?:TORCH|AT|C10)_[A-Z]\w+")
# Namespaces, and the names by which NVIDIA's own examples call some of them.
_ALIASES = {"cg": "cooperative_groups", "ptx": "cuda", "cde": "cuda"}
_LIBRARIES = {"cooperative_groups", "cub", "cuda", "nvcuda", "thrust", "wmma", *_ALIASES}
_IN_LIBRARY = re.compile(
    r"'(?P<name>\w+)' is not a member of '(?P<scope>[\w:]+)'"
    r"|'(?P<name2>\w+)' in namespace '(?P<scope2>[\w:]+)' does not name"
    r"|'(?P<scope3>[\w:]+)::(?P<name3>\w+)' has not been declared"
    r"|'(?:class |struct )?(?:const )?(?P<scope4>[\w:]+)::[^']*' has no member named '(?P<name4>\w+)'"
)
_PLAIN = re.compile(
    r"'(?P<name>\w+)' (?:was not declared in this scope|does not name a (?:template )?type|has not been declared)"
    r"|there are no arguments to '(?P<name2>\w+)' that depend on a template parameter"
)
# A function of a library that is called in a way that the emulator has not, or that is wrong: not known here.
_NO_OVERLOAD = re.compile(r"no matching function for call to '(?P<name>(?:cub|cooperative_groups|cuda)::[^']*)'")
_NO_HEADER = re.compile(
    r"(?P<name>(?:cu(?:blas|dnn|sparse|solver|fft|rand|tensor)\w*|nccl|nvml|nvrtc|npp\w*|mma|(?:nvtx3|cutlass|cute|thrust|cub"
    r"|cuda|cooperative_groups|ATen/(?:native/)?cuda|c10/cuda|torch/csrc/cuda)/[^:\s]+)\.(?:h|cuh|hpp)\w*): "
    r"No such file or directory"
)


@cache
def _of_cuda() -> str:
    """CUDA's own headers, without its C++ libraries."""
    folders = [part for folder in paths.cuda_includes() for part in (folder, folder / "crt")]
    files = [file for folder in folders for pattern in ("*.h", "*.hpp") for file in sorted(folder.glob(pattern))]
    return "\n".join(file.read_text(errors="replace") for file in files)


@cache
def _libraries() -> str:
    return "\n".join(_library_texts())


def _library_texts() -> Iterator[str]:
    torch = paths.torch_folder() / "include"
    folders = [torch / "ATen/cuda", torch / "c10/cuda", torch / "torch/csrc/cuda"]
    folders += [
        folder / name for folder in paths.cuda_includes() for name in ("cooperative_groups", "cccl", "cub", "cuda")
    ]
    folders += [folder / name for folder in paths.cuda_includes() for name in ("crt", "thrust")]
    for folder in folders:
        for file in folder.rglob("*"):
            if file.is_file():
                yield file.read_text(errors="replace")
    for folder in paths.cuda_includes():
        yield from (file.read_text(errors="replace") for file in folder.glob("cooperative_groups.h"))


@cache
def _own_headers(library: str) -> str:
    """The emulator's headers of a library, which have its name; of torch and others all, whose names are their own."""
    files = [file for file in (paths.HERE / "include").rglob("*") if file.is_file()]
    theirs = [file for file in files if library in (file.stem, file.parent.name)] or files
    return re.sub(r"\bemu::\w+", "", "\n".join(file.read_text(errors="replace") for file in sorted(theirs)))


def _own_header_has(scope: str, name: str) -> bool:
    """Then the source has left out a line that includes it."""
    library = scope.split("::")[0]
    return re.search(rf"\b{re.escape(name)}\b", _own_headers(_ALIASES.get(library, library))) is not None


def _library_declares(scope: str, name: str) -> bool:
    if _LIBRARIES.isdisjoint(scope.split("::")):
        return False
    return re.search(rf"\b{re.escape(name)}\b", _libraries()) is not None


def _cuda_declares(name: str) -> bool:
    if _WITHOUT_MASK.fullmatch(name):
        return False
    if _COMPILERS_OWN.fullmatch(name):
        return True
    if _PREFIXES.fullmatch(name) and re.search(rf"\b{name}\b", _of_cuda()):
        return True
    return re.search(_DECLARED.format(name=re.escape(name)), _of_cuda()) is not None


def _torch_defines(name: str) -> bool:
    """Whether a macro of torch's CUDA headers has the name, and none of the emulator's: then the source has left out a
    line that includes it."""
    defined = rf"(?m)^\s*#\s*define\s+{name}\b"
    return bool(
        _TORCHS.fullmatch(name)
        and re.search(defined, _libraries())
        and not re.search(defined, _own_headers("torch's own"))
    )


def missing_in(message: str) -> str:
    """What of CUDA a compiler's error message says is not there, or nothing: a name that nobody declares is the
    source's own mistake."""
    if header := _NO_HEADER.search(message):
        return f"the header {header['name']}"
    if match := _IN_LIBRARY.search(message):
        for number in ("", "2", "3", "4"):
            scope, name = match[f"scope{number}"], match[f"name{number}"]
            if name and _library_declares(scope, name) and (number == "4" or not _own_header_has(scope, name)):
                return f"{scope}::{name}" if number != "4" else f"{name} of {scope}"
    if overload := _NO_OVERLOAD.search(message):
        return overload["name"]
    if match := _PLAIN.search(message):
        name = match["name"] or match["name2"]
        return name if _cuda_declares(name) or _torch_defines(name) else ""
    return ""
