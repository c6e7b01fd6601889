#!/usr/bin/env python3
"""Whether the board and `eval.py compare` tell the same kernel from a slower one.

    python benchmarks/replay.py [SUBMISSION] [--runs N] [--slower SHARE] [--json FILE] [eval.py's options]

Evaluates a submission, twice a copy of it (another comment, the same code), twice a copy that waits for a share of the
first run's time at the end of each call, then the submission N times more. All go into a database of their own. FILE is
written after each of these N. Prints the board, how many of the N neighbouring runs are 'no different', and what the
copy and the slow copy are called. eval.py's options choose one timed case.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import ROOT, of_one_problem, save, the_only_one

DEFAULT = ROOT / "submissions" / "layernorm" / "speed_of_light.py"

# What waits at the end of a call. A GPU's clock is not known from outside, so the wait is measured, and not assumed.
WAITS = '''

import time as _time

import torch as _torch

_Model = ModelNew


def _cycles(us):
    """Clock cycles of the GPU in so many microseconds, by events."""
    begin, end = (_torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        begin.record()
        _torch.cuda._sleep(10_000_000)
        end.record()
        end.synchronize()
    return int(us * 10_000_000 / (1e3 * begin.elapsed_time(end)))


class ModelNew(_Model):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._wait = _cycles(WAIT_US) if _torch.cuda.is_available() else None

    def forward(self, *inputs):
        result = super().forward(*inputs)
        if self._wait is not None:
            _torch.cuda._sleep(self._wait)
        else:
            end = _time.perf_counter() + WAIT_US * 1e-6
            while _time.perf_counter() < end:
                pass
        return result
'''


@dataclass(frozen=True)
class Replay:
    """Where the evaluations go, and what they are evaluated with."""

    folder: Path
    options: Sequence[str]

    @property
    def db(self) -> Path:
        return self.folder / "results.db"

    def evaluate(self, submission: Path, name: str) -> Path:
        """One evaluation, kept in the database and as JSON. Ends this process where it is not accepted and timed."""
        path = self.folder / f"{name}.json"
        words = (submission, "--against", "eager", *self.options, "--db", self.db, "--json", path)
        run = _eval(*words)
        if not path.exists():
            sys.exit(f"eval.py ended with {run.returncode}: {run.stderr}")
        the_only_one(json.loads(path.read_text()))
        return path

    def compare(self, a: Path, b: Path) -> dict[str, Any]:
        """What `eval.py compare` says of whole calls of B beside A: {'case, kind': row}."""
        path = self.folder / "comparison.json"
        run = _eval("compare", a, b, "--db", self.db, "--json", path)
        if run.returncode:
            sys.exit(f"eval.py compare ended with {run.returncode}: {run.stderr}")
        rows = json.loads(path.read_text())["rows"]
        return {f"{row['case']}, {row['kind']}": row for row in rows if not row["part"]}

    def board(self) -> list[dict[str, Any]]:
        """The entries, as the board has them."""
        from harness.store import boards, open_store

        with open_store(self.db) as store:
            (board,) = boards(store)
        return [
            {
                "submission": entry.submission,
                "rank": entry.rank,
                "standing": entry.standing,
                "evaluations": entry.evaluations,
                "speedup": entry.over_eager and entry.over_eager.value,
            }
            for entry in board.entries
        ]


def _eval(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "eval.py"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


@contextlib.contextmanager
def replay(submission: Path, options: list[str]) -> Iterator[Replay]:
    with tempfile.TemporaryDirectory() as folder:
        yield Replay(Path(folder), of_one_problem(submission, options))


def measure(run: Replay, submission: Path, runs: int, slower: float) -> Iterator[dict[str, Any]]:
    """The comparisons of the copy and of the slow copy with the first run, of neighbouring runs, and the board: what is
    known after each of those."""
    source, first = submission.read_text(), run.evaluate(submission, "same_0")
    wait_us = slower * _median_us(first)
    copy, slow = (run.folder / f"{submission.stem}_{name}.py" for name in ("copy", "slow"))
    copy.write_text(f"{source}\n# A copy.\n")
    slow.write_text(source + WAITS.replace("WAIT_US", f"{wait_us:.3f}"))
    copies = [run.evaluate(copy, f"copy_{number}") for number in range(2)]
    slows = [run.evaluate(slow, f"slow_{number}") for number in range(2)]
    beside = {"copy": run.compare(first, copies[0]), "slow": run.compare(first, slows[0])}
    unchanged: list[dict[str, Any]] = []
    before = first
    for number in range(1, runs + 1):
        after = run.evaluate(submission, f"same_{number}")
        unchanged.append(run.compare(before, after))
        before = after
        yield {
            "submission": submission.stem, "slower": slower, "wait_us": wait_us, **beside, "unchanged": unchanged,
            "board": run.board(), "complete": number == runs,
        }  # fmt: skip


def _median_us(results: Path) -> float:
    """Of the case that was timed. Ends this process where there are several."""
    timed = [case["timing"] for case in json.loads(results.read_text())["evaluations"][0]["cases"] if case["timing"]]
    if len(timed) != 1:
        sys.exit(f"{len(timed)} cases were timed: choose one with -k.")
    return float(timed[0]["median_us"])


def show(measured: dict[str, Any]) -> None:
    for entry in measured["board"]:
        rank = f"rank {entry['rank']}" if entry["rank"] else entry["standing"]
        speedup = f"{entry['speedup']:.3f} times eager" if entry["speedup"] else "no speedup"
        print(f"{entry['submission']:32s} {rank:12s} {entry['evaluations']:3d} evaluations, {speedup}")
    for name in measured["copy"]:
        said = [pair[name]["difference"] for pair in measured["unchanged"] if name in pair]
        print(f"{name}: {said.count('no different')} of {len(said)} unchanged runs are no different; "
              f"the copy is {_said(measured['copy'][name])}; "
              f"the one that waits {measured['wait_us']:.1f} us is {_said(measured['slow'].get(name))}")  # fmt: skip


def _said(row: dict[str, Any] | None) -> str:
    if row is None:
        return "not timed so"
    return f"{row['difference']} ({row['a_us']:.1f} and {row['b_us']:.1f} us)"


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("submission", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--runs", type=int, default=20, help="comparisons of unchanged runs, at least one")
    parser.add_argument("--slower", type=float, default=0.05, help="the share by which the slow copy waits")
    parser.add_argument("--json", type=Path, help="where to keep what was measured")
    return parser


def main() -> None:
    arguments, options = parser().parse_known_args()
    if arguments.runs < 1:
        sys.exit("--runs must be 1 or more.")
    measured: dict[str, Any] = {}
    with replay(arguments.submission, options) as run:
        for measured in measure(run, arguments.submission, arguments.runs, arguments.slower):
            save(arguments.json, measured)
    show(measured)


if __name__ == "__main__":
    main()
