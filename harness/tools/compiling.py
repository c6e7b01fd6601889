"""A submission's CUDA sources compiled for architectures that are not here: what ptxas says of each kernel.

The sources are those that its `load_inline` was given when a worker built it for another device. nvcc reads text and
runs none of it: of the flags that a submission gives only those are kept that start no other program and name no file
to write, and sources that may read a file by its path are refused. A submission's process can write what is believed to
be its build, so both are looked at here again. The options are nvcc's own: CUDA Compiler Driver NVCC, "NVCC Command
Options".
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import msgspec

from harness.build.compiler_output import kernel_resources, short_errors
from harness.errors import one_line
from harness.paths import build_cache
from harness.protocol.extension import SOURCES, Extension
from harness.records import KernelResources

# As torch.utils.cpp_extension calls nvcc (COMMON_NVCC_FLAGS), and what `load_inline` puts in front of CUDA sources.
_FLAGS = [
    "-cubin", "-std=c++20", "-Xptxas=-v", "-lineinfo", "--expt-relaxed-constexpr", "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__", "-D__CUDA_NO_HALF2_OPERATORS__",
]  # fmt: skip
_HEADERS = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"

# torch's CPU builds have all of its CUDA headers but this one, which CMake writes.
_MISSING_HEADER = "c10/cuda/impl/cuda_cmake_macros.h"

_KEPT_FLAG = re.compile(
    r"-[DU]\w+(=[\w.+-]*)?|-O[0-3]|--?use_fast_math|--?maxrregcount=\d+|--?(ftz|fmad|prec-div|prec-sqrt)=\w+"
    r"|--?expt-(relaxed-constexpr|extended-lambda)|--?extended-lambda|-std=c\+\+\d+|--std=c\+\+\d+"
)

# Where a toolkit installs itself.
USUAL_HOME = "/usr/local/cuda"

# torch's headers alone take a compiler 10 s; one that needs longer than this is taken to hang.
TIMEOUT_S = 900

# Of each process of a compiler. torch's headers take 2 GiB.
_LIMITS = {resource.RLIMIT_AS: 16 << 30, resource.RLIMIT_FSIZE: 1 << 30, resource.RLIMIT_CPU: TIMEOUT_S}

WITHOUT_NVCC = (
    "Nothing was compiled for {}: there is no nvcc here, neither a toolkit's nor that of PyPI's nvidia-cuda-nvcc."
)


class Kernels(msgspec.Struct, frozen=True):
    """The kernels of a submission on one architecture, or the first errors of the compiler."""

    kernels: tuple[KernelResources, ...] = ()
    error: str = ""


def find_nvcc() -> Path | None:
    """nvcc of a toolkit on the path, in CUDA_HOME or at its usual place; else that of PyPI's packages."""
    homes = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), USUAL_HOME, *_packages()]
    tried = [shutil.which("nvcc"), *(str(Path(home) / "bin" / "nvcc") for home in homes if home)]
    return next((Path(name) for name in tried if name and os.access(name, os.X_OK)), None)


def _packages() -> list[str]:
    """Where PyPI's nvidia packages put a toolkit: nvidia/cu13 since CUDA 13, one folder a package before."""
    spec = find_spec("nvidia")
    roots = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    return [str(folder) for root in roots for folder in sorted(root.iterdir()) if folder.is_dir()]


def compile_for(nvcc: Path, source_sha256: str, architectures: Sequence[str]) -> Iterator[tuple[str, Kernels]]:
    """For each architecture, in their order, what the compiler said of all kernels that a submission was built from."""
    extensions = [extension for extension in _extensions(build_cache(source_sha256)) if extension.cuda_sources]
    if not extensions:
        return
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield from zip(architectures, pool.map(partial(_compiled, nvcc, extensions), architectures), strict=True)


def _extensions(cache: Path) -> list[Extension]:
    """What was built, each once: other devices, other versions and files of other names built the same."""
    found: dict[str, Extension] = {}
    for path in sorted(cache.glob(f"*/{SOURCES}")):
        try:
            extension = msgspec.json.decode(path.read_bytes(), type=Extension)
        except (OSError, msgspec.MsgspecError):
            continue
        found.setdefault(_without_files(extension).digest(""), extension)
    return list(found.values())


def _without_files(extension: Extension) -> Extension:
    """The same, whatever the submission's file is called."""
    cpp, cuda = (
        tuple(replace(s, file="") for s in sources) for sources in (extension.cpp_sources, extension.cuda_sources)
    )
    return replace(extension, cpp_sources=cpp, cuda_sources=cuda)


def _compiled(nvcc: Path, extensions: Sequence[Extension], architecture: str) -> Kernels:
    found: list[KernelResources] = []
    for extension in extensions:
        if line := extension.reads_by_path:
            return Kernels(error=f"`{one_line(line[:100])}` may read a file beside the submission, which is one file.")
        code, output = _run(nvcc, extension, architecture)
        if code:
            return Kernels(error=short_errors(output))
        found += kernel_resources(output)
    return Kernels(tuple(found))


def _run(nvcc: Path, extension: Extension, architecture: str) -> tuple[int, str]:
    with tempfile.TemporaryDirectory(prefix="kernelgate-nvcc-") as name:
        folder = Path(name)
        source = folder / "cuda.cu"
        pieces = [piece.located for piece in extension.cuda_sources]
        source.write_text("\n".join([*([] if extension.no_implicit_headers else [_HEADERS]), *pieces]))
        words = [*_FLAGS, f"-arch={architecture}", *_includes(nvcc, folder), *kept_flags(extension.extra_cuda_cflags)]
        command = [str(nvcc), *words, "-o", str(folder / "cuda.cubin"), str(source)]
        return _ended(command, folder)


def _ended(command: Sequence[str], folder: Path) -> tuple[int, str]:
    """The exit code of a compiler and what it printed. Nothing that it started is left."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", cwd=folder, start_new_session=True) as process:  # fmt: skip
        try:
            for limit, most in _LIMITS.items():  # its compilers begin later, and inherit them
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(process.pid, limit, (most, most))
            output, _ = process.communicate(timeout=TIMEOUT_S)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            return 1, f"The compiler did not finish within {TIMEOUT_S} s."
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def kept_flags(flags: Sequence[str]) -> list[str]:
    """Definitions and what decides the code; another language standard than torch's headers need is none."""
    return [flag for flag in flags if _KEPT_FLAG.fullmatch(flag) and "std=" not in flag]


def _includes(nvcc: Path, folder: Path) -> list[str]:
    """torch's headers, Python's, what torch's CPU build lacks, and where nvcc is of PyPI's packages theirs: a toolkit
    knows its own."""
    spec = find_spec("torch")
    assert spec is not None and spec.origin
    torch = Path(spec.origin).parent / "include"
    stand_in = folder / "include" / _MISSING_HEADER
    if not (torch / _MISSING_HEADER).exists():
        stand_in.parent.mkdir(parents=True)
        stand_in.write_text("#pragma once\n")
    folders = [torch, torch / "torch/csrc/api/include", Path(sysconfig.get_paths()["include"]), folder / "include"]
    packages = _packages()
    if str(nvcc.parent.parent) in packages:
        folders += [path for package in packages for path in (Path(package, "include"), Path(package, "include/cccl"))]
    return [word for path in folders if path.exists() for word in ("-isystem", str(path))]
