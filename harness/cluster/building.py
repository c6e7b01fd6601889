"""Builds for a seat that is busy meanwhile: `python -m harness.cluster.building DEVICE ISOLATION ARCHITECTURE CHECK
FILE` builds what the submission in FILE will ask for, as far as that is written in it, and prints the builds.

It needs no GPU: ARCHITECTURE is that of the seat's, such as 9.0. A build is used where all that decides it is as on the
seat's node, compilers, torch and processor among it; otherwise the seat builds, as it does where nothing comes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import process
from harness.cluster.programs import finished
from harness.cluster.wire import Part, encode
from harness.device.choose import prepare_device
from harness.device.memory_file import MemoryFile
from harness.errors import HarnessError, UsageError
from harness.isolation import builds
from harness.isolation.levels import choose_isolation
from harness.isolation.starter import Starter
from harness.judging.building import NICENESS, Ahead, Builds
from harness.lanes.loading import ends_with_its_caller
from harness.storage import cache
from harness.submission import read_submission

# The emulator's libraries may have to be built first, and a compiler is given 15 minutes.
LIMIT_S = 1200.0

NOTHING = encode([])


def built(device: str, isolation: str, architecture: str, check: bool, name: str, source: bytes) -> bytes:
    """What Ray runs: Parts, as JSON, from a process of its own; none where that fails, which the seat then says."""
    with tempfile.TemporaryDirectory(prefix="kernelgate-building-") as folder:
        path = Path(folder) / name
        path.write_bytes(source)
        words = (device, isolation, architecture, "check" if check else "", str(path))
        try:
            done = finished("harness.cluster.building", words, LIMIT_S)
        except (OSError, subprocess.TimeoutExpired):
            return NOTHING
    return NOTHING if done.returncode else done.stdout


def _parts(device: str, isolation: str, architecture: str, check: bool, file: Path) -> list[Part]:
    """Built in this machine's cache. Raises HarnessError, UsageError and OSError."""
    submission = read_submission(file)
    prepare_device(device, [file], check=check, on_build=lambda: None)
    of_workers = "cpu" if device == "cuda" else device  # nvcc needs no GPU
    with contextlib.closing(MemoryFile()) as memory:
        starter, ahead = Starter(of_workers, memory.fd, choose_isolation(isolation, of_workers)), Ahead()
        made = Builds(device, starter, ahead, architecture)
        try:
            made.begin_ahead(submission, check=check)
            ahead.finish()
        finally:
            starter.end()
    entries = made.written(submission, check=check)
    return [Part(e.digest, builds.read(e.library.parent)) for e in entries if e.library.exists()]


def main() -> int:
    if not ends_with_its_caller():
        return 1
    process.prepare()
    os.nice(NICENESS)
    device, isolation, architecture, check, file = sys.argv[1:]
    try:
        with cache.in_use():
            parts = _parts(device, isolation, architecture, bool(check), Path(file))
    except (HarnessError, UsageError, OSError, KeyboardInterrupt) as error:
        print(error, file=sys.stderr)
        return 1
    sys.stdout.buffer.write(encode(parts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
