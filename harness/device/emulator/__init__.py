"""CUDA on the CPU: a device named cuda in a torch without a GPU, and a compiler for its kernels.

A process calls `activate` before it imports torch; from then on `load_inline` extensions built by
`EmulatorToolchain` run, block by block, with their threads as fibers. docs/emulator.md says what is emulated.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.device.emulator import libraries, preludes, runtime, standins
from harness.device.emulator.building import CompilerError, compilers, result_of
from harness.device.emulator.paths import Missing
from harness.device.emulator.runtime import (
    caller_reads,
    caller_writes,
    configure,
    name,
    name_by_size,
    name_lines,
    take_counts,
    take_findings,
    testify,
)
from harness.device.emulator.toolchain import EmulatorToolchain

__all__ = [
    "CompilerError",
    "EmulatorToolchain",
    "Missing",
    "activate",
    "caller_reads",
    "caller_writes",
    "configure",
    "ended_by_failure",
    "is_prepared",
    "name",
    "name_by_size",
    "name_lines",
    "prepare",
    "take_counts",
    "take_findings",
    "testify",
    "unprepared",
]


def is_prepared(cache: Path, submissions: Iterable[Path], *, check: bool) -> bool:
    """Whether `prepare` has nothing to build, which takes half a minute."""
    return not unprepared(cache, submissions, check=check)


def unprepared(cache: Path, submissions: Iterable[Path], *, check: bool) -> list[Path]:
    """Where what `prepare` would build will be."""
    cache = Path(cache).resolve()
    folders = EmulatorToolchain(cache, check).preludes(_wanted(submissions))
    return [folder for folder in (libraries.place(cache), *folders) if not folder.exists()]


def prepare(cache: Path, submissions: Iterable[Path], *, check: bool) -> None:
    """Build the emulator in `cache`, and the preludes that these submissions' sources want, where they are not there
    yet. Workers that run submissions read them and cannot write there."""
    cache = Path(cache).resolve()
    compilers.begin()
    with ThreadPoolExecutor(2) as pool, compilers.ended_by_failure():
        built = pool.submit(libraries.build, cache)
        EmulatorToolchain(cache, check).prepare(_wanted(submissions))
        result_of(built)


def ended_by_failure() -> contextlib.AbstractContextManager[None]:
    """Whatever is raised within it ends what `prepare` has started in another thread."""
    return compilers.ended_by_failure()


def _wanted(submissions: Iterable[Path]) -> set[str]:
    return {preludes.LEAN}.union(*map(preludes.wanted, submissions))


def activate(cache: Path) -> None:
    """Give this process an emulated cuda device; builds it on the first call with this cache.

    torch looks its CUDA hooks up once, while it is imported, so that this must come before.
    """
    if "torch" in sys.modules:
        raise RuntimeError("torch is already imported; activate() must run before, since torch looks for CUDA then.")
    folder = libraries.build(Path(cache).resolve())
    own = standins.load(folder)
    runtime.load(folder)
    import torch

    standins.torch_is_imported(own)
    runtime.load_for_python(folder)
    from harness.device.emulator import torch_cuda

    torch_cuda.install(torch)
    runtime.configure()
