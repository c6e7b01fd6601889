#!/usr/bin/env python3
"""What workers use of the processors in a round, beside their timed calls and in them.

    python benchmarks/round_costs.py submissions/layernorm/speed_of_light.py [options of eval.py]

Runs eval.py and prints to standard error, for each timed part of a case, a line per implementation: milliseconds of the
processors before, in and after the timed calls, medians of all rounds with their 10% and 90% quantiles. Below stand the
threads of the submission's worker that have used most so far. Nothing is refused for it and nothing is stored: it shows
why `worked_beside_the_clock` was said. A thread that does not sleep is counted in steps of the system's timer, so that
whoever is never stopped shows multiples of some milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import common  # noqa: F401  makes the harness importable
import numpy as np

from harness import cli
from harness.device.base import Device
from harness.judging.runner import Runner
from harness.timing import concluding
from harness.timing.case_times import CaseTimes
from harness.timing.part import Part
from harness.timing.rounds.contender import Contender

# Threads that are shown.
MOST_THREADS = 6


def main() -> int:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print_what_is_used()
    sys.argv = ["eval.py", *sys.argv[1:], "--no-store"]
    return cli.main()


def print_what_is_used() -> None:
    """From now on print what is used where eval.py would refuse it."""
    played: list[Contender] = []
    times_of = concluding.case_times

    def case_times(
        part: Part, contenders: Sequence[Contender], runners: Mapping[str, Runner], device: Device
    ) -> CaseTimes:
        played[:] = contenders
        captured = ", captured" if contenders[0].captured else ""
        print(
            f"\n{part.case}{part.shown and f', {part.shown}'}{captured}: {contenders[0].calls} calls in a round",
            file=sys.stderr,
        )
        return times_of(part, contenders, runners, device)

    def show(submission: Contender, null: Contender, *_: Any, **__: Any) -> None:
        for contender in (*played, null):
            print(line_of(contender), file=sys.stderr)
        threads = threads_of(submission.worker.pid)
        print(f"  the submission's worker has {len(threads)} threads; those that have used most:", file=sys.stderr)
        for name, user_s, system_s in threads[:MOST_THREADS]:
            print(f"  thread {name:20s} {user_s:8.2f} s in programs {system_s:8.2f} s in the system", file=sys.stderr)

    concluding.case_times = case_times
    concluding.refuse_work_beside_the_clock = show


def line_of(contender: Contender) -> str:
    """Milliseconds of the processors in a round."""
    used = contender.processor_s
    columns = {part: [getattr(each, part) * 1e3 for each in used] for part in ("before", "timed", "after")}
    shown = [f"{part} {_quantiles(values)}" for part, values in columns.items()] if used else ["no rounds"]
    return f"  {contender.name:16s} {len(used):3d} rounds   {'   '.join(shown)}"


def _quantiles(values: Sequence[float]) -> str:
    low, median, high = np.quantile(values, [0.1, 0.5, 0.9])
    return f"{median:7.2f} ms [{low:.2f}, {high:.2f}]"


def threads_of(pid: int) -> list[tuple[str, float, float]]:
    """Name, and seconds of the processors in programs and in the system, of `pid`'s threads; most first. proc(5)"""
    ticks = os.sysconf("SC_CLK_TCK")
    found = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            name, _, fields = stat.read_text().partition("(")[2].rpartition(") ")
            user_s, system_s = (int(field) / ticks for field in fields.split()[11:13])
            found.append((name, user_s, system_s))
    return sorted(found, key=lambda thread: thread[1] + thread[2], reverse=True)


if __name__ == "__main__":
    sys.exit(main())
