#!/usr/bin/env python3
"""Whether `eval.py gate` lets pull requests pass that it should, and no others.

    python benchmarks/gate_proof.py [SUBMISSION] [--unchanged N] [-k NAME] [--json FILE]

Makes a git repository with one submission to a LayerNorm of some 150 µs on an H100, whose main branch is gated and
stored, and a branch for each pull request: a right change, a wrong one, one that waits for 5% of the time at the end of
each call, and a comment, which changes nothing and is gated N times. Each is a run of `eval.py gate --since main`.
Exits with 1 where one does not end as it should. Without a GPU nothing is timed, and the slower one is left out.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common import ROOT, save
from replay import WAITS
from toy_repository import MINE, RIGHT, UNCHANGED, WRONG, Toy

from harness.exits import Exit

DEFAULT = ROOT / "submissions" / "layernorm" / "rung4_vectorised_registers.py"
# Beside a GPU the emulator's detectors see the right and the wrong one: of the others times are asked for.
UNCHECKED = ("--no-require-check",)

# What the gate says where it compared nothing.
NOT_COMPARED = ("no-slower-than-best left out", "could not be run beside it")

# What is stored as a best has a rank: main is gated again where the machine was too noisy for one.
TOO_NOISY, TRIES = "too noisy to rank", 3

LOG_LINES = 40


@dataclass(frozen=True)
class PullRequest:
    """A branch, and what the gate must end with."""

    name: str
    appended: str
    expected: Exit
    options: tuple[str, ...] = ()

    @property
    def branch(self) -> str:
        return self.name.split()[0]


@dataclass(frozen=True)
class Gated:
    """One run of the gate."""

    name: str
    expected: int
    got: int
    seconds: float
    compared: bool
    """Whether the stored best ran beside it."""
    needs_comparison: bool
    slower: dict[str, list[list[float]]]
    """For 'called' and 'captured', of each run of the judge: how much longer than the best it took, a share, and the
    ends of the 95% interval."""
    log: list[str]
    """What the gate printed, without its table of kernels."""
    notes: list[str]
    """What the judge remarked in all its runs."""

    @property
    def is_as_expected(self) -> bool:
        return self.got == self.expected and (self.compared or not self.needs_comparison)

    @property
    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"as_expected": self.is_as_expected}


def gate(toy: Toy, request: PullRequest) -> tuple[Gated, dict[str, Any]]:
    """The gate on a branch, and the results that it wrote. The main branch's are stored."""
    toy.git("checkout", "-q", request.branch)
    out = toy.folder.parent / "results.json"
    out.unlink(missing_ok=True)
    since = () if request.branch == "main" else ("--since", "main", "--no-store")
    words = ("gate", "--db", toy.db, "--report", f"json={out}", "--color", "never", *request.options, *since)
    begin = time.perf_counter()
    done = toy.eval(*words)
    seconds = time.perf_counter() - begin
    results = json.loads(out.read_text()) if out.exists() else {"evaluations": []}
    lines = [line for line in done.stdout.splitlines() if not line.startswith(f"{MINE}  ")]
    log = [_shown(line, toy.folder.parent) for line in lines]
    gated = Gated(
        name=request.name,
        expected=int(request.expected),
        got=done.returncode,
        seconds=round(seconds, 1),
        compared=not any(said in line for line in log for said in NOT_COMPARED),
        needs_comparison=on_gpu() and request.branch != "main" and request.expected is not Exit.REJECTED,
        slower=_slower(results),
        log=log[-LOG_LINES:],
        notes=[note for evaluation in results["evaluations"] for note in evaluation["notes"]],
    )
    _print(gated)
    return gated, results


@functools.cache
def on_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _shown(line: str, folder: Path) -> str:
    return line.replace(f"{folder}/", "").replace(f"{ROOT}/", "")


def _slower(results: dict[str, Any]) -> dict[str, list[list[float]]]:
    """Beside the stored best, from the results' timed cases."""
    found: dict[str, list[list[float]]] = {}
    for evaluation in results["evaluations"]:
        for timing in filter(None, (case.get("timing") for case in evaluation["cases"])):
            for kind, of_kind in (("called", timing), ("captured", timing.get("captured"))):
                for name, baseline in (of_kind or {"baselines": {}})["baselines"].items():
                    if re.fullmatch("best_[0-9a-f]+", name):
                        ratio, (low, high) = baseline["speedup"]["ratio"], baseline["speedup"]["interval"]
                        found.setdefault(kind, []).append([round(1 / x - 1, 4) for x in (ratio, high, low)])
    return found


def _timed_us(results: dict[str, Any]) -> float | None:
    timed = [case["timing"] for e in results["evaluations"] for case in e["cases"] if case.get("timing")]
    return float(timed[0]["median_us"]) if timed else None


# ---------------------------------------------------------------------- the proof


def requests(unchanged: int, wait_us: float | None) -> list[PullRequest]:
    """What is asked to be merged; the slower one only where times are known."""
    unchecked = UNCHECKED if on_gpu() else ()
    waits = WAITS.replace("WAIT_US", f"{wait_us:.3f}") if wait_us else ""
    return [
        PullRequest("right", RIGHT, Exit.ACCEPTED),
        PullRequest("wrong", WRONG, Exit.REJECTED),
        *([PullRequest("slower", waits, Exit.TOO_SLOW, unchecked)] if waits else []),
        *[PullRequest(f"unchanged {number + 1}", UNCHANGED, Exit.ACCEPTED, unchecked) for number in range(unchanged)],
    ]


class Builds:
    """Builds of submissions side by side, which the gate finds in the cache. What fails is told by the gate."""

    def __init__(self, toy: Toy) -> None:
        self._toy = toy
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, source: str, *, checked: bool = True) -> None:
        folder = Path(tempfile.mkdtemp(dir=self._toy.folder.parent))
        (folder / "mine.py").write_text(source)
        problem = self._toy.folder / "problems" / "layernorm.py"
        words = ("eval.py", folder / "mine.py", "--problem", problem, "--no-timing", "--no-store", "-q", "-k", "769")
        devices = [*([("--device", "emulator", "--check")] if checked else []), *([("--device", "cuda")] * on_gpu())]
        for device in devices:
            command = [sys.executable, *map(str, (ROOT / words[0], *words[1:], *device))]
            self._running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def finish(self) -> None:
        while self._running:
            self._running.pop().wait()


def prove(toy: Toy, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What is known so far, after each run."""
    begin, source, builds = time.perf_counter(), arguments.submission.read_text(), Builds(toy)
    toy.begin(source)
    chosen = [request for request in requests(arguments.unchanged, None) if arguments.select in request.name]
    for text in dict.fromkeys(["", *(request.appended for request in chosen)]):
        builds.start(source + text)
    builds.finish()
    built_s = time.perf_counter() - begin
    for _ in range(TRIES):
        stored, results = gate(toy, PullRequest("main", "", Exit.ACCEPTED))
        if not any(TOO_NOISY in line for line in stored.log):
            break
    median_us = _timed_us(results)
    found: dict[str, Any] = {
        "submission": arguments.submission.stem, "median_us": median_us, "slower": arguments.slower,
        "on_gpu": on_gpu(), "building_s": round(built_s, 1), "complete": False, "runs": [stored.as_json],
    }  # fmt: skip
    yield found
    if not stored.is_as_expected or (on_gpu() and median_us is None):
        return
    asked = requests(arguments.unchanged, median_us and arguments.slower * median_us)
    chosen = [request for request in asked if arguments.select in request.name]
    for request in chosen:
        if request.expected is Exit.TOO_SLOW:  # how long it waits is known now
            builds.start(source + request.appended, checked=False)
    builds.finish()  # what is timed is alone
    for request in chosen:
        toy.commit(request.branch, source + request.appended)
        gated, _ = gate(toy, request)
        found["runs"].append(gated.as_json)
        found["complete"] = request is chosen[-1]
        yield found


def _print(gated: Gated) -> None:
    ends = "as expected" if gated.is_as_expected else f"expected {gated.expected}"
    more = "" if gated.compared or not gated.needs_comparison else ", not compared with the stored best"
    beside = "; ".join(
        f"{kind} {share:+.1%} [{low:+.1%}, {high:+.1%}]"
        for kind, runs in gated.slower.items()
        for share, low, high in runs
    )
    print(f"{gated.name:14s} exit {gated.got}, {ends}{more}, {gated.seconds:5.1f} s  {beside}", flush=True)
    if not gated.is_as_expected:
        print("\n".join(f"    {line}" for line in gated.log), flush=True)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("submission", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--unchanged", type=int, default=20, help="runs of the pull request that changes nothing")
    parser.add_argument("--slower", type=float, default=0.05, help="the share by which the slow one waits")
    parser.add_argument("-k", dest="select", default="", help="only pull requests whose name has this")
    parser.add_argument("--json", type=Path, help="where to keep what was found, after each run")
    return parser


def main() -> int:
    arguments = parser().parse_args()
    if not shutil.which("git"):
        sys.exit("This needs git, which is not here.")
    begin, found = time.perf_counter(), {}
    with tempfile.TemporaryDirectory(prefix="kernelgate-proof-") as folder:
        for found in prove(Toy(Path(folder).resolve() / "toy"), arguments):
            save(arguments.json, found | {"seconds": round(time.perf_counter() - begin, 1)})
    return _verdict(found, time.perf_counter() - begin)


def _verdict(found: dict[str, Any], seconds: float) -> int:
    runs = found["runs"]
    right = sum(run["as_expected"] for run in runs)
    print(f"{right} of {len(runs)} runs end as they should, in {seconds:.0f} s, {found['building_s']:.0f} s to build.")
    if not found["on_gpu"]:
        print("There is no GPU here: the slower one is left out, and nothing was compared with the stored best.")
    return 0 if right == len(runs) and found["complete"] else 1


if __name__ == "__main__":
    sys.exit(main())
