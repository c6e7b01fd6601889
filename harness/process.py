"""How a process that judges is set up, before it loads torch or starts anything."""

from __future__ import annotations

import os
import signal

from harness.isolation.levels import protect_judge
from harness.paths import judge_cache
from harness.storage import bytecode

# Read when torch is loaded. Threads of the judge that have nothing to do must not spin beside what is timed. But to
# draw a round's data takes many short operations, and four times as long where a thread sleeps after each. 50 µs
# outlast the gap between two, and are a four-hundredth of a round on a CPU.
SPINS_BRIEFLY = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "2000"}

# Read when torch is loaded, too (c10/core/impl/alloc_cpu.cpp). A large tensor's first use waits for the system to give
# each page; pages of 2 MiB in place of 4 KiB make a sum of two such tensors four times as fast. Workers do without:
# what is timed has the memory that torch gives to everybody.
HAS_LARGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}


def prepare() -> None:
    """Set up this one. SIGTERM then raises KeyboardInterrupt, as if somebody had pressed Ctrl-C: what was started is
    ended, and what was measured is reported."""
    for name, value in {**SPINS_BRIEFLY, **HAS_LARGE_PAGES}.items():
        os.environ.setdefault(name, value)
    bytecode.keep()
    # A reference may load torch's compiler, which makes itself a folder: not among temporary files.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(judge_cache()))
    # Some start what they run with this ignored, and how a worker ended would then be nobody's to know.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, _terminated)
    protect_judge()


def _terminated(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
