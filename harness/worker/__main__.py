"""A worker as a process of its own: `python -m harness.worker DESCRIPTORS DEVICE EMULATOR_CACHE WRITABLE [MODULE…]`.

Started by harness.isolation.launch. It loads torch (and MODULEs) and reaches its device before it is told what to run,
so that this happens while the judge still loads.
"""

import sys
from pathlib import Path

from harness.worker.process import Descriptors, answer, load
from harness.worker.walls.limits import restrict


def main() -> None:
    descriptors, device, emulator_cache, writable, *modules = sys.argv[1:]
    restrict(writable)
    load(device, Path(emulator_cache), modules)
    answer(Descriptors.parse(descriptors), device, Path(emulator_cache))


if __name__ == "__main__":
    main()
