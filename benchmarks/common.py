"""What the scripts here share: running eval.py, and files that say where, when and how they were made."""

from __future__ import annotations

import functools
import json
import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

# Medians in microseconds of one run of a submission: by case, called and captured.
Times = dict[str, float]

# Exit code of a script that ran out of its --limit-s: its file holds what was done until then. (EX_TEMPFAIL)
INCOMPLETE = 75


def evaluate(*words: object) -> dict[str, Any]:
    """The results of one run of eval.py. Where there are none, ends this process with what eval.py said."""
    command = [sys.executable, str(ROOT / "eval.py"), *map(str, words), "--json", "-", "--no-store"]
    process = subprocess.run(command, capture_output=True, text=True)
    if not process.stdout.startswith("{"):
        sys.exit(f"eval.py ended with {process.returncode}: {process.stderr}")
    return json.loads(process.stdout)


def of_one_problem(submission: Path, options: list[str]) -> list[str]:
    """`options`, which choose the problem of the submission's folder where they choose none."""
    return options if "--problem" in options else ["--problem", submission.resolve().parent.name, *options]


def the_only_one(results: dict[str, Any]) -> dict[str, Any]:
    """The evaluation of a run of one submission. Ends this process when it was not accepted or nothing was timed."""
    (evaluation,) = results["evaluations"]
    if evaluation["status"] != "accepted":
        sys.exit(f"{evaluation['submission']} was not accepted: {evaluation['message']}")
    if not any(case["timing"] for case in evaluation["cases"]):
        sys.exit(f"Nothing of {evaluation['submission']} was timed on {evaluation['device']}: choose timed cases.")
    return evaluation


@functools.cache
def _environment() -> dict[str, Any]:
    from harness.environment import describe

    return describe()


def this_command() -> str:
    """How this process was started, without folders that are this machine's own."""
    script, *words = sys.argv
    return shlex.join(["python", _shown(os.path.abspath(script)), *map(_shown, words)])


def _shown(word: str) -> str:
    if not os.path.isabs(word):
        return word
    return os.path.relpath(word, ROOT) if Path(word).is_relative_to(ROOT) else os.path.basename(word)


def save(path: Path | None, content: dict[str, Any], **environment: Any) -> None:
    """Write `content` with the machine, the versions, the date and the command; whole or not at all. Without a path
    nothing is written. An `environment` that `content` brings is kept: it is where the figures were measured."""
    if path is None:
        return
    known = content.get("environment") or _environment()
    content = {"environment": {}, **content} | {"environment": {**known, **environment, "command": this_command()}}
    path.parent.mkdir(parents=True, exist_ok=True)
    from harness.report import files

    files.write(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def seconds_of(samples: Sequence[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in samples)


def times_over(base: Sequence[Times], runs: Sequence[Times]) -> list[float]:
    """How long each of `runs` took, 1 being the median of `base`: the geometric mean of the cases that all have."""
    shared = set.intersection(*(set(times) for times in (*base, *runs)))
    usual_us = {case: statistics.median(times[case] for times in base) for case in shared}
    return [statistics.geometric_mean([times[case] / usual_us[case] for case in shared]) for times in runs]


def spread_by_way(times_us: dict[str, list[Times]]) -> Iterator[tuple[str, str]]:
    """For each way in which copies of a submission were timed, how long they took over the median of those "alone": the
    median, the least and the most. Nothing where nothing was timed."""
    base = times_us.get("alone", [])
    for way, runs in times_us.items() if any(base) else ():
        if runs:
            ratios = times_over(base, runs)
            yield way, f"{statistics.median(ratios):.4f} [{min(ratios):.4f}, {max(ratios):.4f}], {len(runs)} copies"
