#!/usr/bin/env python3
"""How long one run takes over many submissions that nobody has built, beside what it would take one after another.

    python benchmarks/full_machine.py [SUBMISSION] [--count N] [--alone N] [--jobs N] [--device D] [--quick]

Choose GPUs by CUDA_VISIBLE_DEVICES, and processors by taskset. Where several GPUs are chosen, all of this is measured
on the first of them with its share of the processors, and then one run over as many copies on all.

The submissions are copies of one whose kernels are named anew, so that each is built. All are judged by one run of
`eval.py FOLDER`, then `--alone` others by a run each. Printed are the run's seconds; how long the device was busy, from
the first case of a submission to its last time; the seconds of all builds over the processors; and what the run may
take by both: 1.2 times the one or 1.3 times the other, whichever is larger.

All copies do the same, so their times also show what builds do to a timing: those of copies that ended while others
were built stand beside those of `--again` copies that are judged again, in one run that builds nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from common import ROOT, Times, evaluate, save, seconds_of, spread_by_way

DEFAULT = ROOT / "submissions" / "layernorm" / "rung4_vectorised_registers.py"
BUSY_TIMES, BUILD_TIMES = 1.2, 1.3


@dataclass
class Watched:
    """When what happened to each submission."""

    begun_s: dict[str, float] = field(default_factory=dict)
    timed_s: dict[str, float] = field(default_factory=dict)
    ended_s: dict[str, float] = field(default_factory=dict)
    busy_s: dict[str, float] = field(default_factory=dict)
    build_s: dict[str, float] = field(default_factory=dict)
    times_us: dict[str, Times] = field(default_factory=dict)
    statuses: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Why those that were not accepted were not."""

    def __call__(self, event: object) -> None:
        from harness.events import Finished, Judging, TimesBegin
        from harness.verdict import status_of

        match event:
            case Judging():
                self.begun_s.setdefault(event.submission, time.monotonic())
            case TimesBegin():
                self.timed_s[event.submission] = time.monotonic()
            case Finished(evaluation):
                self.ended_s[evaluation.submission] = time.monotonic()
                begun_s = self.begun_s.setdefault(evaluation.submission, time.monotonic())
                self.busy_s[evaluation.submission] = time.monotonic() - begun_s
                if times_us := times_us_of(msgspec.to_builtins(evaluation)):
                    self.times_us[evaluation.submission] = times_us
                self.build_s[evaluation.submission] = evaluation.build.seconds if evaluation.build else 0.0
                self.statuses.append(status_of(evaluation))
                print(f"{len(self.statuses)}: {evaluation.submission} {self.statuses[-1]}, built in "
                      f"{self.build_s[evaluation.submission]:.1f} s, judged in "
                      f"{self.busy_s[evaluation.submission]:.1f} s", flush=True)  # fmt: skip
                if self.statuses[-1] != "accepted":  # all are alike, and right
                    self.refused[evaluation.submission] = f"{evaluation.reason}: {evaluation.message}"
                    print(f"   {self.refused[evaluation.submission]}", flush=True)

    def timing_s(self) -> float:
        """Of the seconds that the device was busy those in which submissions were timed."""
        return sum(self.ended_s[name] - timed_s for name, timed_s in self.timed_s.items() if name in self.ended_s)

    def times_us_beside_builds(self) -> list[Times]:
        """Of the submissions that ended while another was built: a build ends before the first case of its submission
        begins."""
        last_build_s = max(self.begun_s.values(), default=0.0)
        return [times_us for name, times_us in self.times_us.items() if self.ended_s[name] < last_build_s]


def times_us_of(evaluation: dict[str, Any]) -> Times:
    """What an evaluation, as JSON has it, was timed at."""
    times_us = {}
    for case in evaluation["cases"]:
        if timing := case.get("timing"):
            times_us[case["name"]] = timing["median_us"]
            if captured := timing["captured"]:
                times_us[f"{case['name']}, captured"] = captured["median_us"]
    return times_us


def write_variants(source: str, folder: Path, names: Sequence[str]) -> list[Path]:
    """Copies that ask for extensions of names of their own."""
    paths = []
    for name in names:
        path = folder / f"{name}.py"
        path.write_text(source.replace('name="', f'name="{name}_'))
        paths.append(path)
    return paths


def judged_s(paths: Sequence[Path], arguments: argparse.Namespace, watched: Watched) -> float:
    """Seconds of a run over these."""
    from harness.plan import Arguments, make_plan
    from harness.shares import run_side_by_side, usual_jobs

    begun_s = time.monotonic()
    plan = make_plan(
        Arguments(
            paths=tuple(paths),
            problem="layernorm",
            device=arguments.device,
            timing=arguments.timing,
            effort="quick" if arguments.quick else "usual",
        )
    )
    run_side_by_side(plan, arguments.jobs or usual_jobs(plan), watched)
    return time.monotonic() - begun_s


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    from harness.device.choose import visible_gpus

    on_gpus = arguments.jobs is None and arguments.device in (None, "cuda")
    if on_gpus and len(gpus := visible_gpus()) > 1:
        return {**_measured_on(gpus[0], len(gpus), arguments, folder), "several": _on_several(arguments, folder)}
    source = arguments.submission.read_text()
    # What all need is built here, and torch's compiler has what it keeps. In a process of its own: one that stayed on a
    # GPU would be taken for another user of it, beside whom rounds are played again.
    (first,) = write_variants(source, folder, ["first"])
    _alone_s(first, arguments)
    alone_s = [_alone_s(path, arguments) for path in write_variants(source, folder, _names("alone", arguments.alone))]
    watched, again = Watched(), Watched()
    variants = write_variants(source, folder, _names("variant", arguments.count))
    together_s = judged_s(variants, arguments, watched)
    if arguments.again and watched.times_us:
        print("Again, with nothing to build:", flush=True)
        judged_s(variants[: arguments.again], arguments, again)
    return {
        "submission": arguments.submission.stem,
        **_together(arguments, together_s, watched, arguments.jobs or 1),
        "alone_s": alone_s,
        "timed": arguments.timing,
        "effort": "quick" if arguments.quick else "usual",
        "times_us": {"alone": list(again.times_us.values()), "while building": watched.times_us_beside_builds()},
    }


def _together(arguments: argparse.Namespace, together_s: float, watched: Watched, lanes: int) -> dict[str, Any]:
    """What is told of one run over all copies."""
    busy_s, build_s = sum(watched.busy_s.values()), sum(watched.build_s.values())
    processors = len(os.sched_getaffinity(0))
    return {
        "count": arguments.count,
        "processors": processors,
        "lanes": lanes,
        "together_s": together_s,
        "busy_s": busy_s,
        "timing_s": watched.timing_s(),
        "build_s": build_s,
        "may_take_s": max(BUSY_TIMES * busy_s / lanes, BUILD_TIMES * build_s / processors),
        "refused": watched.refused,
    }


def _measured_on(gpu: str, gpus: int, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """What this program measures on one of the GPUs, by a process that leaves with its contexts."""
    out = folder / "one.json"
    words = ["--count", arguments.count, "--alone", arguments.alone, "--again", arguments.again, "--json", out]
    chosen = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, chosen[: len(chosen) // gpus])
    try:
        subprocess.run(
            [sys.executable, __file__, arguments.submission, *map(str, words), *_how(arguments)],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu},
            check=True,
        )
    finally:
        os.sched_setaffinity(0, chosen)
    return json.loads(out.read_text())


def _on_several(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One run over copies that nobody has built, on all GPUs."""
    from harness.device.choose import visible_gpus

    watched = Watched()
    variants = write_variants(arguments.submission.read_text(), folder, _names("several", arguments.count))
    together_s = judged_s(variants, arguments, watched)
    return _together(arguments, together_s, watched, len(visible_gpus()))


def _how(arguments: argparse.Namespace) -> list[str]:
    """Options of eval.py that say how is judged."""
    device = ["--device", arguments.device] if arguments.device else []
    return [*device, *(["--quick"] if arguments.quick else [] if arguments.timing else ["--no-timing"])]


def _alone_s(path: Path, arguments: argparse.Namespace) -> float:
    """Seconds of `eval.py` for one submission. Ends this process when it is not accepted."""
    begun_s = time.monotonic()
    (evaluation,) = evaluate(path, "--problem", "layernorm", *_how(arguments))["evaluations"]
    if evaluation["status"] != "accepted":
        sys.exit(f"{path.name} is not accepted, so its copies say nothing: {evaluation['message']}")
    return time.monotonic() - begun_s


def _names(word: str, count: int) -> list[str]:
    return [f"{word}_{number}" for number in range(count)]


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("submission", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--count", type=int, default=64, help="submissions in one run")
    parser.add_argument("--alone", type=int, default=3, help="submissions that are judged one after another")
    parser.add_argument("--again", type=int, default=16, help="of those in one run so many again, if they are timed")
    parser.add_argument("--jobs", type=int, help="as eval.py has it")
    parser.add_argument("--device", choices=["cuda", "cpu", "emulator"], help="as eval.py has it")
    parser.add_argument("--quick", action="store_true", help="as eval.py has it")
    parser.add_argument("--no-timing", dest="timing", action="store_false", help="verdicts only")
    parser.add_argument("--json", type=Path, help="where to keep what was measured")
    return parser


def main() -> int:
    arguments = parser().parse_args()
    from harness import process
    from harness.storage import cache

    with tempfile.TemporaryDirectory(prefix="kernelgate-full-") as folder:
        os.environ.setdefault("KERNELGATE_CACHE", str(Path(folder) / "cache"))
        process.prepare()
        with cache.in_use():
            found = measure(arguments, Path(folder))
    save(arguments.json, found)
    _tell(found)
    if several := found.get("several"):
        times = found["together_s"] / several["together_s"]
        print(
            f"{several['count']} on {several['lanes']} GPUs: {several['together_s']:.1f} s, {times:.2f} times as fast"
        )
    return 0


def _tell(found: dict[str, Any]) -> None:
    print(
        f"{found['count']} of {found['submission']}: {found['together_s']:.1f} s, may take {found['may_take_s']:.1f} s"
    )
    print(f"  the device was busy for {found['busy_s']:.1f} s on {found['lanes']} lanes, idle for "
          f"{1 - found['busy_s'] / found['lanes'] / found['together_s']:.0%}")  # fmt: skip
    print(f"  of these {found['timing_s']:.1f} s went into times")
    print(f"  builds took {found['build_s']:.1f} s, on {found['processors']} processors")
    if found["alone_s"]:
        alone_s = sum(found["alone_s"]) / len(found["alone_s"])
        print(f"  one after another: {seconds_of(found['alone_s'])} s each; "
              f"{alone_s * found['count'] / found['together_s']:.2f} times as fast together")  # fmt: skip
    if found["refused"]:
        print(f"  {len(found['refused'])} copies were not accepted: {found['refused']}")
    for way, spread in spread_by_way(found["times_us"]):
        print(f"  timed {way}, over the usual time alone: {spread}")


if __name__ == "__main__":
    sys.exit(main())
