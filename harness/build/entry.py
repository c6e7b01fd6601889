"""A built extension: a folder named by the digest of all that decides it, with its library and what was said of it.

A build happens in a folder of its own that is renamed into place when complete: two builds of the same thing both
succeed, and one that died leaves nothing that could be waited for.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.build.extension import Toolchain
from harness.protocol.extension import SOURCES, Extension
from harness.records import KernelResources

_REPORT = "kernels.json"


@dataclass(frozen=True)
class Entry:
    """Where an extension lies once it is built with a toolchain, and what its module is called."""

    extension: Extension
    digest: str
    cache: Path

    @classmethod
    def of(cls, extension: Extension, toolchain: Toolchain, cache: Path) -> Entry:
        return cls(extension, extension.digest(toolchain.fingerprint()), cache)

    @property
    def module_name(self) -> str:
        return self.extension.module_name(self.digest)

    @property
    def library(self) -> Path:
        return self.cache / self.digest / f"{self.module_name}.so"

    def kernels(self) -> list[KernelResources]:
        """What the compiler said of its kernels."""
        return msgspec.json.decode((self.library.parent / _REPORT).read_bytes(), type=list[KernelResources])

    def build(self, toolchain: Toolchain) -> None:
        """Raises BuildFailed, Unsupported, and OSError."""
        self.cache.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix="building-", dir=self.cache))
        try:
            library, kernels = toolchain.compile(self.extension, self.module_name, scratch)
            finished = scratch / "finished"
            finished.mkdir()
            shutil.copy2(library, finished / f"{self.module_name}.so")
            (finished / _REPORT).write_bytes(msgspec.json.encode(kernels))
            (finished / SOURCES).write_bytes(msgspec.json.encode(self.extension))
            try:
                os.rename(finished, self.library.parent)
            except OSError:
                if not self.library.exists():  # else another build of the same thing was faster
                    raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
