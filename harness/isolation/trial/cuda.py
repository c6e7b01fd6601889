"""On a GPU: whether the judge and an isolated process can open each other's memory by CUDA IPC.

`python -m harness.isolation.trial.cuda WORDS…` is the judge's side; it starts the isolated side,
`WORDS… python -m harness.isolation.trial.cuda`. Neither needs torch. Exits with 0 when memory was shared both ways.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Sequence

from harness.device import driver

OURS, THEIRS = b"\x5a" * 64, b"\xa5" * 64


def main(system_words: Sequence[str]) -> int:
    return _inside() if not system_words else _outside(system_words)


def _outside(system_words: Sequence[str]) -> int:
    driver.open_primary_context()
    address = driver.allocate(len(OURS))
    driver.write(address, OURS)
    command = [*system_words, "--", sys.executable, "-P", "-m", "harness.isolation.trial.cuda"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        print(driver.export_handle(address), file=process.stdin, flush=True)
        handle = process.stdout.readline().strip()
        if not handle:
            print("an isolated process could not use CUDA", file=sys.stderr)
            return 1
        got = driver.read(driver.open_handle(handle), len(THEIRS))
        process.stdin.close()
    if got != THEIRS:
        print("the judge read something else than an isolated process had written", file=sys.stderr)
        return 1
    return 0


def _inside() -> int:
    driver.open_primary_context()
    seen = driver.read(driver.open_handle(sys.stdin.readline().strip()), len(OURS))
    if seen != OURS:
        print("an isolated process read something else than the judge had written", file=sys.stderr)
        return 1
    address = driver.allocate(len(THEIRS))
    driver.write(address, THEIRS)
    print(driver.export_handle(address), flush=True)
    sys.stdin.read()  # the memory has to last until it was read
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (driver.DriverError, OSError, ValueError, ctypes.ArgumentError) as error:
        print(f"CUDA IPC does not work there: {error}", file=sys.stderr)
        sys.exit(1)
