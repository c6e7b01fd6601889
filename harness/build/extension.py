"""One `load_inline` call as a value, and what a compiler for it must offer."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.errors import KernelgateError
from harness.records import KernelResources

# Beside what was built: the Extension that it was built from, as JSON.
SOURCES = "sources.json"


class BuildFailed(KernelgateError):
    """The compiler refused the source; the text is short and names lines of the submission's file."""


# What the emulated device says before the name of what it cannot do, while a submission runs.
NOT_EMULATED = "CUDA emulator: not emulated: "


class Unsupported(KernelgateError):
    """The source is legal CUDA that this device cannot execute; names the line and what is missing."""


@dataclass(frozen=True)
class SourceText:
    """A piece of C++ or CUDA and where it stands: its first line is line `line` of `file`.

    `line` is 0 when the text was computed and stands nowhere in the file.
    """

    text: str
    file: str = ""
    line: int = 0

    @property
    def located(self) -> str:
        """The text behind a `#line` directive, so that compilers speak of the submission's own lines."""
        if not self.line:
            return self.text
        return f"#line {self.line} {json.dumps(self.file)}\n{self.text}"


@dataclass(frozen=True)
class Extension:
    """The arguments of one `torch.utils.cpp_extension.load_inline` call that decide what is built.

    `functions` maps each exported C++ function to its docstring. Order is kept everywhere, since it
    reaches the compiler's command line.
    """

    name: str
    cpp_sources: tuple[SourceText, ...]
    cuda_sources: tuple[SourceText, ...] = ()
    functions: tuple[tuple[str, str], ...] = ()
    extra_cflags: tuple[str, ...] = ()
    extra_cuda_cflags: tuple[str, ...] = ()
    extra_ldflags: tuple[str, ...] = ()
    extra_include_paths: tuple[str, ...] = ()
    no_implicit_headers: bool = False
    """Whether the sources include torch's headers themselves."""

    def digest(self, toolchain_fingerprint: str) -> str:
        """SHA-256 (first 32 hex digits) of everything that can change the built file."""
        parts = [
            toolchain_fingerprint,
            SOURCES,  # every build has them
            [s.located for s in self.cpp_sources],
            [s.located for s in self.cuda_sources],
            self.functions,
            self.extra_cflags,
            self.extra_cuda_cflags,
            self.extra_ldflags,
            self.extra_include_paths,
            self.no_implicit_headers,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


class Toolchain(Protocol):
    """Compiles an extension into a Python module on disk; one per device."""

    def fingerprint(self) -> str:
        """Everything beside the sources that decides the result: compiler, torch, CUDA, architecture, flags."""
        ...

    def compile(self, extension: Extension, module_name: str, folder: Path) -> tuple[Path, tuple[KernelResources, ...]]:
        """Build `module_name` in the empty `folder` and return the shared object and the compiler's report.

        Raises BuildFailed or Unsupported.
        """
        ...
