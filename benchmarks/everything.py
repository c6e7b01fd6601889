#!/usr/bin/env python3
"""Every measurement that the documents show, from one command that can be stopped and continued.

    python benchmarks/everything.py results/h200                    all that needs a GPU (benchmarks/plan.py)
    python benchmarks/everything.py results/h200 --budget-s 570     what fits into that; run it again for the rest
    python benchmarks/everything.py results/h100 --gpus 0,1        on two GPUs, each step on one of them
    python benchmarks/everything.py results/cpu --plan cpu          what is compared with it, without a GPU
    python benchmarks/everything.py /tmp/dry_run --dry-run       each step's program here, with its smallest input

Steps run in order of importance. FOLDER/run.json records what was done, and with which submissions: a step that is
done is left out, and a changed kernel is measured again. Delete run.json, and hostile.json, after a change of the
judge. A step that fails or takes too long is named, and the others go on. `python benchmarks/write_documents.py` makes
the documents' tables afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import plan
from common import INCOMPLETE, ROOT
from plan import FOLDER, Step

from harness.exits import Exit
from harness.report import files

_T = TypeVar("_T")

PLANS = {"gpu": plan.gpu, "cpu": plan.cpu}

# eval.py writes what it has measured when it is interrupted; the limit for that.
ENDING_S = 15.0

# Whether this program is to end: steps are sessions of their own, which a terminal's Ctrl-C does not reach.
INTERRUPTED = threading.Event()

# How long a step may not notice that.
LOOK_S = 0.2

# A dry run times a case where others work, too, and is done again when eval.py says this.
TOO_BUSY, TRIES = "Something else keeps the machine busy", 4


@dataclass(frozen=True)
class Done:
    """What became of a step, as run.json keeps it."""

    outcome: str
    """done, or why not."""
    seconds: float
    date: str
    command: str
    exit_code: int | None
    digest: str
    """Of the command and the files that it read: Step.digest."""


class Record:
    """FOLDER/run.json: what was done, whenever."""

    def __init__(self, folder: Path):
        self._folder, self._path = folder, folder / "run.json"
        self._done = json.loads(self._path.read_text()) if self._path.exists() else {}
        self._writing = threading.Lock()

    def has(self, step: Step) -> bool:
        """Whether the step's results are here and are of what it would read now."""
        known = self._done.get(step.name, {})
        there = all((self._folder / name).exists() for name in step.files)
        return there and known.get("outcome") == "done" and known.get("digest") == step.digest()

    def add(self, step: Step, done: Done) -> None:
        with self._writing:
            self._done[step.name] = asdict(done)
            files.write(self._path, json.dumps(self._done, indent=1) + "\n")


def run(step: Step, words: Sequence[str], folder: Path, limit_s: float, gpu: str = "") -> Done:
    """Run a step's command, which sees one GPU where its number is given; what it prints goes to a file."""
    started, clock = time.time(), time.monotonic()
    log = folder / (step.printed or f"logs/{step.name}.txt")
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w") as output:
        process = subprocess.Popen(
            [sys.executable, "-u", *(word.replace(FOLDER, str(folder)) for word in words)],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            env=os.environ | ({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}),
        )  # fmt: skip
        outcome = _wait(process, limit_s)
    missing = [name for name in step.files if not _is_newer(folder / name, started)]
    if outcome == "done" and missing:
        outcome = f"left no {', '.join(missing)}"
    if process.returncode == INCOMPLETE:
        outcome = "ran out of its own time; what was done is there"
    elif words[0] == "eval.py" and process.returncode == Exit.HARNESS:
        outcome = "the harness or the device failed"
    elif step.printed and process.returncode:
        outcome = f"exit code {process.returncode}"
    return Done(
        outcome=outcome,
        seconds=round(time.monotonic() - clock, 1),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command_of(words, "FOLDER"),
        exit_code=process.returncode,
        digest=step.digest(),
    )


def command_of(words: Sequence[str], folder: str) -> str:
    return shlex.join(["python", *(word.replace(FOLDER, folder) for word in words)])


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> str:
    begun = time.monotonic()
    while (elapsed_s := time.monotonic() - begun) < limit_s and not INTERRUPTED.is_set():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(LOOK_S, limit_s - elapsed_s))
            return "done"
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_S)
            break
    return "interrupted" if INTERRUPTED.is_set() else f"stopped after {limit_s:.0f} s"


def _is_newer(path: Path, moment: float) -> bool:
    return path.exists() and path.stat().st_mtime >= moment - 1


def last_words(folder: Path, step: Step) -> str:
    """The last line that a step printed."""
    path = folder / (step.printed or f"logs/{step.name}.txt")
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1][:300] if lines else ""


# ---------------------------------------------------------------------- the whole


@dataclass
class Measurement:
    """What is measured into a folder until a moment of time.monotonic, and what is still wanting."""

    folder: Path
    record: Record
    ends_s: float
    wanting: list[str] = field(default_factory=list)

    def run(self, together: Sequence[Step], gpu: str) -> None:
        """Run those side by side that are not done yet and fit, on the GPU of that number, or on all without one."""
        for step in [step for step in together if self.record.has(step)]:
            print(f"{step.name:28s} done before", flush=True)
        due = [step for step in together if not self.record.has(step)]
        left_s = self.ends_s - time.monotonic()
        fitting = [step for step in due if step.seconds <= left_s]
        self.wanting += [f"{step.name} (about {step.seconds:.0f} s)" for step in due if step not in fitting]
        with ThreadPoolExecutor(len(fitting) or 1) as pool:
            limits_s = [min(step.limit_s, left_s) for step in fitting]
            started = zip(fitting, limits_s, strict=True)
            running = [pool.submit(run, step, step.words, self.folder, limit_s, gpu) for step, limit_s in started]
            for step, future in zip(fitting, running, strict=True):
                self._keep(step, _result(future))

    def _keep(self, step: Step, done: Done) -> None:
        self.record.add(step, done)
        code = f", exit code {done.exit_code}" if done.exit_code else ""
        print(f"{step.name:28s} {done.seconds:6.1f} s of {step.seconds:.0f}  {done.outcome}{code}  "
              f"{last_words(self.folder, step)}", flush=True)  # fmt: skip
        if done.outcome != "done":
            self.wanting.append(f"{step.name} ({done.outcome})")


def measure(steps: plan.Plan, folder: Path, budget_s: float, gpus: Sequence[str] = ("",)) -> bool:
    """Run what is not done yet and fits; whether all is done. Each of several GPUs takes the next steps when it has
    done its last; builds come first, and alone."""
    begun = time.monotonic()
    measurement = Measurement(folder, Record(folder), begun + budget_s)
    builds = [together for together in steps if together[0].name == plan.BUILDS]
    for together in builds:
        measurement.run(together, gpus[0])
    waiting, taking = iter([together for together in steps if together not in builds]), threading.Lock()

    def lane(gpu: str) -> None:
        while not INTERRUPTED.is_set():
            with taking:
                together = next(waiting, None)
            if together is None:
                return
            measurement.run(together, gpu)

    with ThreadPoolExecutor(len(gpus)) as pool:
        for running in [pool.submit(lane, gpu) for gpu in gpus]:
            _result(running)
    print(f"\n{time.monotonic() - begun:.0f} s. Still wanting: {', '.join(measurement.wanting) or 'nothing'}.")
    print("The tables of the documents: python benchmarks/write_documents.py")
    return not measurement.wanting


def _result(running: Future[_T]) -> _T:
    """What became of something that runs. After Ctrl-C steps end early, and do not count as done."""
    while True:
        try:
            return running.result()
        except KeyboardInterrupt:
            INTERRUPTED.set()


def with_builds(steps: plan.Plan, folder: Path) -> plan.Plan:
    """`steps` behind a step that builds what is missing. The verdicts on everything do that by themselves where
    they come first; otherwise each step would wait for its own compilers."""
    record = Record(folder)
    due = [step for together in steps for step in together if not record.has(step)]
    return steps if due and due[0].name == "verdicts" else [*plan.builds(due), *steps]


def dry_run_all(steps: plan.Plan, folder: Path) -> bool:
    """Each step's program with the least to do; whether all did as they must."""
    failed = []
    for step in (step for together in steps for step in together):
        for _ in range(TRIES):
            done = run(step, step.dry_run, folder, limit_s=900)
            said = (folder / (step.printed or f"logs/{step.name}.txt")).read_text(errors="replace")
            right = step.refusal in said if step.refusal else done.outcome == "done" and done.exit_code == 0
            if right or TOO_BUSY not in said:
                break
        failed += [] if right else [step.name]
        shown = f"refused, as it must: {step.refusal}" if right and step.refusal else done.outcome
        print(f"{'ok   ' if right else 'WRONG'} {step.name:28s} {done.seconds:6.1f} s  {shown}  "
              f"{'' if right else last_words(folder, step)}", flush=True)  # fmt: skip
    print(f"tried; wrong: {', '.join(failed) or 'none'}")
    return not failed


def print_plan(steps: plan.Plan, folder: Path) -> None:
    record = Record(folder.resolve())
    total_s = 0.0
    for together in steps:
        for number, step in enumerate(together):
            state = "done" if record.has(step) else f"{step.seconds:.0f} s"
            beside = " beside the one before" if number else ""
            print(f"{step.name:28s} {state:>6s}{beside}  {command_of(step.words, str(folder))}")
        total_s += max((step.seconds for step in together if not record.has(step)), default=0.0)
    print(f"{total_s:.0f} s in all, about")


MISSING_PEERS = """
from harness import peers
for name in peers.DISTRIBUTIONS:
    try:
        peers.load(name, "layernorm")
    except peers.NotAvailable as error:
        print("left out:", error)
"""


def print_machine() -> None:
    """What is missing here, since steps leave it out. Another process imports the peers: one of them may take memory
    on the GPU for as long as its process lives. Raises CalledProcessError if it fails."""
    tools = [tool for tool in ("nvcc", "ncu", "compute-sanitizer") if not shutil.which(tool)]
    print(f"Tools that are not on the path: {', '.join(tools) or 'none'}.")
    tried = subprocess.run(
        [sys.executable, "-c", MISSING_PEERS], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    missing = [line.removeprefix("left out: ") for line in tried.stdout.splitlines() if line.startswith("left out: ")]
    print("Peers that are left out:", " ".join(missing) or "none.")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where results go, and run.json, which says what was done")
    parser.add_argument("--plan", choices=PLANS, default="gpu")
    parser.add_argument("--budget-s", type=float, default=1e9, metavar="N", help="what does not fit is left out")
    parser.add_argument("--gpus", default="", metavar="N,N", help="steps on each of these, side by side")
    parser.add_argument("--only", action="append", metavar="STEP", help="may be given again, in the order to run")
    parser.add_argument("--list", action="store_true", help="print the steps and their seconds")
    parser.add_argument("--dry-run", action="store_true", help="each step's program with the least to do")
    return parser


def chosen(steps: plan.Plan, only: Sequence[str] | None) -> plan.Plan:
    """Those of `steps` that `only` names, in its order; all without it. Ends this process when a name is no step's."""
    if not only:
        return steps
    names = [step.name for together in steps for step in together]
    if unknown := [name for name in only if name not in names]:
        sys.exit(f"No step is called {', '.join(unknown)}. The steps: {', '.join(names)}.")
    kept = [[step for step in together if step.name in only] for together in steps]
    return sorted(filter(None, kept), key=lambda together: only.index(together[0].name))


def main() -> int:
    options = parser().parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell has it ignored; steps inherit it
    steps = chosen(PLANS[options.plan](), options.only)
    if options.list:
        print_plan(steps, options.folder)
        return 0
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    print_machine()
    if options.dry_run:
        return 0 if dry_run_all(steps, folder) else 1
    steps = with_builds(steps, folder) if options.plan == "gpu" else steps
    return 0 if measure(steps, folder, options.budget_s, options.gpus.split(",")) else 1


if __name__ == "__main__":
    sys.exit(main())
