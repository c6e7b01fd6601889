"""What a compiler of extensions must offer, and how it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from harness.errors import KernelgateError
from harness.protocol.extension import Extension
from harness.records import KernelResources


class BuildFailed(KernelgateError):
    """The compiler refused the source; the text is short and names lines of the submission's file."""


# What the emulated device says before the name of what it cannot do, while a submission runs.
NOT_EMULATED = "CUDA emulator: not emulated: "


class Unsupported(KernelgateError):
    """The source is legal CUDA that this device cannot execute; names the line and what is missing."""


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
