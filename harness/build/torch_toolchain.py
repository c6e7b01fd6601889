"""The real compilers, through PyTorch's own `load_inline`, in a process of their own."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from harness.build import lean
from harness.build.compiler_output import kernel_resources, short_errors
from harness.build.extension import BuildFailed
from harness.protocol.extension import Extension
from harness.records import KernelResources

# A compiler that needs longer than this is taken to hang; a large CUTLASS kernel takes two minutes.
BUILD_TIMEOUT_S = 900
_HANGS = f"The compiler did not finish within {BUILD_TIMEOUT_S} s."


@cache
def _version(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "missing"


def architecture_here() -> str:
    """That of the GPU that is present, such as 9.0."""
    import torch

    return "{}.{}".format(*torch.cuda.get_device_capability())


class TorchToolchain:
    """g++ for C++, and nvcc for `architecture`, or else that of the GPU that is present."""

    # Line information lets profilers and checkers name lines, and changes no instruction: one build does for all.
    _NVCC_FLAGS = ("-Xptxas=-v", "-lineinfo")

    def __init__(self, cuda: bool, architecture: str = "", *, forks: bool = False) -> None:
        """With `forks` the process that compiles is forked from this one, which has loaded torch, has no CUDA context
        and runs nothing else."""
        import torch

        self._architecture = (architecture or architecture_here()) if cuda else ""
        self._forks = forks
        self._headers = Path(torch.__file__).parent / "include"
        self._torch = f"{torch.__version__} {torch.version.cuda} {torch._C._GLIBCXX_USE_CXX11_ABI}"

    def fingerprint(self) -> str:
        parts = [
            "torch toolchain 2",
            self._torch,
            sys.version,
            platform.machine(),
            self._architecture,
            _version(os.environ.get("CXX", "c++"), "--version"),
            _version(os.environ.get("CXX", "c++"), "-march=native", "-Q", "--help=target"),
        ]
        if self._architecture:
            parts += [_version("nvcc", "--version"), *self._NVCC_FLAGS]
        return "\n".join(parts)

    def compile(self, extension: Extension, module_name: str, folder: Path) -> tuple[Path, tuple[KernelResources, ...]]:
        """See harness.build.extension.Toolchain. Sources are tried with less of torch's headers first."""
        if extension.cuda_sources and not self._architecture:
            raise BuildFailed(
                "load_inline was given cuda_sources, and this run is on the CPU. Use --device cuda or emulator."
            )
        if lean.may_do(extension):
            with contextlib.suppress(OSError), tempfile.TemporaryDirectory(dir=folder) as headers:
                lean.write(Path(headers), self._headers, extension)
                try:
                    return self.compile_by_torch(extension, module_name, folder, headers)
                except BuildFailed as error:
                    if lean.are_of_the_source(str(error), self._headers, extension):
                        raise
        return self.compile_by_torch(extension, module_name, folder)

    def compile_by_torch(
        self, extension: Extension, module_name: str, folder: Path, *headers: str
    ) -> tuple[Path, tuple[KernelResources, ...]]:
        """Built by torch, with folders of `headers` before its own. Raises BuildFailed."""
        request = {
            "name": module_name,
            "cpp_sources": [source.located for source in extension.cpp_sources],
            "cuda_sources": [source.located for source in extension.cuda_sources],
            "functions": dict(extension.functions),
            "extra_cflags": list(extension.extra_cflags),
            "extra_cuda_cflags": [*extension.extra_cuda_cflags, *self._NVCC_FLAGS],
            "extra_ldflags": list(extension.extra_ldflags),
            "extra_include_paths": [*headers, *extension.extra_include_paths],
            "build_directory": str(folder),
            # Not every torch knows it.
            **({"no_implicit_headers": True} if extension.no_implicit_headers else {}),
        }
        environment = {"TORCH_CUDA_ARCH_LIST": self._architecture, "MAX_JOBS": "2"}
        code, printed = (_by_fork if self._forks else _by_program)(request, environment)
        if code:
            raise BuildFailed(short_errors(printed))
        return folder / f"{module_name}.so", kernel_resources(printed)


def _by_program(request: dict[str, Any], environment: dict[str, str]) -> tuple[int, str]:
    """Have a program of its own compile; its exit code, and what it printed. Raises BuildFailed for one that hangs."""
    try:
        process = subprocess.run(
            [sys.executable, "-m", "harness.build.torch_compiler"],
            input=json.dumps(request),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **environment},
            timeout=BUILD_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise BuildFailed(_HANGS) from error
    return process.returncode, process.stdout


def _by_fork(request: dict[str, Any], environment: dict[str, str]) -> tuple[int, str]:
    """As `_by_program`, by a fork of this process: to load torch takes as long as some sources."""
    from harness.build import torch_compiler

    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = psutil.Process(torch_compiler.compile_in_fork(request, environment, output.fileno()))
        try:
            code = process.wait(BUILD_TIMEOUT_S)
        except psutil.TimeoutExpired as error:
            process.kill()
            process.wait()
            raise BuildFailed(_HANGS) from error
        output.seek(0)
        return 1 if code is None else code, output.read()
