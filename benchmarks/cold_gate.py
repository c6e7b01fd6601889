#!/usr/bin/env python3
"""How long a plain runner takes from checkout to the gate's verdict on one changed kernel, and where the time goes.

    python benchmarks/cold_gate.py [SUBMISSION] [--warm-cache] [--extra-index-url URL] [--json FILE]

Does what action.yml does on a runner that has nothing but pip's cache: clones this repository and one of kernels, makes
a virtual environment, installs, and gates a branch that changes one kernel. The gate is run twice more, with another
kernel and with the same, which tells the emulator's build from the kernel's and from judging. pip's cache is filled by
an installation before, which `--warm-cache` leaves out. Exits with 1 where it takes more than the target.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from common import ROOT, save
from toy_repository import RIGHT, Toy

DEFAULT = ROOT / "submissions" / "layernorm" / "rung3_warp_shuffle.py"
TARGET_S = 180.0


@dataclass(frozen=True)
class Runner:
    """A machine on which nothing is installed: all lies in `folder`."""

    folder: Path
    index: str
    """Where wheels of torch for a CPU are, beside what pip's own settings name; may be empty."""

    @property
    def harness(self) -> Path:
        return self.folder / "kernelgate"

    @property
    def toy(self) -> Toy:
        return Toy(self.folder / "toy")

    def check_out(self, source: str) -> None:
        """This repository as it is committed, and a branch of the other."""
        _run("git", "clone", "-q", ROOT, self.harness)
        self.toy.begin(source)
        self.toy.commit("changed", source + RIGHT)

    def make_environment(self, name: str) -> None:
        _run(sys.executable, "-m", "venv", self.folder / name)

    def install(self, name: str) -> None:
        """As action.yml."""
        wheels = ["--extra-index-url", self.index] if self.index else []
        _run(self._python(name), "-m", "pip", "install", "--quiet", *wheels, "--constraint",
             self.harness / "constraints.txt", "--editable", f"{self.harness}[emulator]")  # fmt: skip

    def gate(self, name: str) -> str:
        """The gate's last line. Ends this process where it is not open."""
        words = ("gate", "--since", "main", "--no-store", "--db", self.toy.db, "-q")
        cache = str(self.folder / "cache")
        done = self.toy.eval(*words, python=self._python(name), harness=self.harness, KERNELGATE_CACHE=cache)
        return _printed(done).splitlines()[-1]

    def change(self, source: str) -> None:
        self.toy.commit("changed", source)

    def _python(self, name: str) -> Path:
        return self.folder / name / "bin" / "python"


def _run(*words: object) -> None:
    """Ends this process with all that it prints where it fails."""
    _printed(subprocess.run(list(map(str, words)), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))


def _printed(done: subprocess.CompletedProcess[str]) -> str:
    """What it printed. Ends this process with all of that where it failed."""
    if done.returncode:
        sys.exit(f"{Path(done.args[0]).name} ended with {done.returncode}: {done.stdout}")
    return done.stdout


def measure(runner: Runner, source: str, *, fills_cache: bool) -> dict[str, float]:
    """Seconds of each step, in order."""
    if fills_cache:
        _fill(Runner(runner.folder / "before", runner.index), source)
    steps = {
        "checkout": _seconds(lambda: runner.check_out(source)),
        "virtual environment": _seconds(lambda: runner.make_environment("venv")),
        "installation": _seconds(lambda: runner.install("venv")),
    }
    cold_s = _seconds(lambda: runner.gate("venv"))
    runner.change(source.replace('name="', 'name="another_') + RIGHT)  # an extension that is not built yet
    other_s = _seconds(lambda: runner.gate("venv"))
    warm_s = _seconds(lambda: runner.gate("venv"))
    return steps | {
        "the emulator's build": cold_s - other_s,
        "the kernel's build": other_s - warm_s,
        "the rest of the gate": warm_s,
    }


def _fill(runner: Runner, source: str) -> None:
    runner.folder.mkdir()
    runner.check_out(source)
    runner.make_environment("venv")
    runner.install("venv")


def _seconds(do: Callable[[], object]) -> float:
    begin = time.perf_counter()
    do()
    return time.perf_counter() - begin


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("submission", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--warm-cache", action="store_true", help="pip's cache has all of it: do not install twice")
    parser.add_argument("--extra-index-url", default="", metavar="URL", help="where torch for a CPU is, as for pip")
    parser.add_argument("--json", type=Path, help="where to keep what was measured")
    return parser


def main() -> int:
    arguments = parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="kernelgate-cold-") as folder:
        steps = measure(
            Runner(Path(folder).resolve(), arguments.extra_index_url),
            arguments.submission.read_text(),
            fills_cache=not arguments.warm_cache,
        )
    total_s = sum(steps.values())
    save(arguments.json, {"submission": arguments.submission.stem, "cpus": os.cpu_count(), "steps_s": steps,
                          "total_s": total_s, "target_s": TARGET_S})  # fmt: skip
    for name, seconds in steps.items():
        print(f"{name:22s} {seconds:6.1f} s")
    print(f"{'from checkout':22s} {total_s:6.1f} s of {TARGET_S:.0f}, on {os.cpu_count()} cores")
    return 0 if total_s <= TARGET_S else 1


if __name__ == "__main__":
    sys.exit(main())
