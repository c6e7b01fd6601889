"""Running the product as its users do: eval.py, each time in a process of its own."""

import atexit
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tests import machine
from tests.eval_server import EvalServer

ROOT = Path(__file__).resolve().parent.parent

# How often something is timed at the most, where others keep the machine busy.
PATIENCE = 4

# What a report says where the submission or a baseline has no time. That times are `too_noisy_to_rank` is a note on
# times that were taken, and usual on a virtual machine.
BUSY = r"\btoo_noisy\b|lost in the noise"

# Options and verbs that say what is timed, or that nothing is judged.
NEVER_TIMED = {"--no-timing", "audit", "compare", "env", "list", "new"}
VERBS = NEVER_TIMED | {"--quick", "bundle", "profile", "watch"}

# A thread of torch's that waits for its next piece of work spins, which takes up to half of a run's processor time
# where nothing is large and a core has more than one test. What is timed has all threads.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}

# Of a run on the emulator that leaves nothing out.
ALL_DETECTORS = ("--device", "emulator", "--check", "--no-timing")

# Variables that libraries read while they are loaded.
READ_AT_LOAD = ("OMP_", "MKL_", "OPENBLAS_", "LD_", "MALLOC_", "PYTHON", "TORCH")

# A problem of KernelBench's kind: `formula` of `arguments`, on what `data` gives.
FORMULA = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, {arguments}):
        return {formula}

def get_inputs():
    return [{data}]

def get_init_inputs():
    return []
"""


@dataclass
class EvalRun:
    """What one run of eval.py gave: exit code, standard output and error, and the JSON results if any."""

    code: int
    stdout: str
    stderr: str
    results: dict

    def __repr__(self) -> str:
        """What a failed assertion shows: why each submission got its verdict, which pytest would cut off."""
        why = [
            (e["submission"], e["status"], e["reason"], e.get("message")) for e in self.results.get("evaluations", [])
        ]
        return f"<code {self.code}: {why or self.stderr[-1000:]}>"


def expected(path):
    """('rejected', 'wrong_output') from the line 'expect: rejected wrong_output' at the file's head."""
    line = next(line for line in path.read_text().splitlines() if line.startswith("expect: "))
    status, *reason = line.removeprefix("expect: ").split()
    return status, reason[0] if reason else None


@functools.cache
def _server():
    server = EvalServer(ONE_THREAD)
    atexit.register(server.end)
    return server


def forked_eval(words, environment, timeout_s=580, folder=ROOT):
    """eval.py with exactly these words and variables, forked from a process that has loaded torch with one thread."""
    return _server().run([*map(str, words)], environment, timeout_s, folder)


def run_eval(*arguments, json_results=True, timeout_s=580, env=None, alone=None, program=False, untimed=False):
    """Run eval.py with `arguments`; with `json_results` the results are asked for on standard output.

    Only with --quick something is timed, and nothing else runs meanwhile unless `alone` says otherwise: where the
    times do not matter. What only judges, as words say or `untimed`, is forked from a process that has loaded torch,
    unless it has to be a `program` of its own: where it matters how the judge's process looks to others. That may be
    given as words, which start something that takes eval.py's place."""
    words = [*map(str, arguments)]
    chosen = VERBS & set(words)
    if json_results:
        words += ["--json", "-"]
    if not chosen:
        words.append("--no-timing")
    untimed = untimed or bool(NEVER_TIMED & set(words))
    if alone is None:
        alone = "--quick" in words and not untimed
    forked = untimed and not (program or alone or any(name.startswith(READ_AT_LOAD) for name in env or {}))
    environment = {**os.environ, **(ONE_THREAD if untimed else {}), **(env or {})}
    with machine.alone() if alone else contextlib.nullcontext():
        if forked:
            process = forked_eval(words, environment, timeout_s)
        else:
            process = subprocess.run(
                [*(program if isinstance(program, list) else [sys.executable, str(ROOT / "eval.py")]), *words],
                capture_output=True, text=True, timeout=timeout_s, env=environment, cwd=ROOT,
            )  # fmt: skip
    results = json.loads(process.stdout) if json_results and process.stdout.startswith("{") else {}
    return EvalRun(process.returncode, process.stdout, process.stderr, results)


def is_alive(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def is_compiler(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return "cc1plus" in process.name()
    return False


def run_timed(*arguments, quiet=False, **options):
    """`run_eval` with --quick, again when the machine was too busy to time anything; with `quiet` also when the report
    says that others used it meanwhile, as the machine's own host may."""
    busy = f"{BUSY}|other programs took" if quiet else BUSY
    for _ in range(PATIENCE):
        run = run_eval(*arguments, "--quick", **options)
        if not re.search(busy, run.stdout + run.stderr):
            break
    return run


@functools.cache
def judged(*arguments):
    """`run_eval`, once for all tests that ask for the same, also in other processes of pytest-xdist."""
    run_of_tests = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    folder = Path(tempfile.gettempdir()) / f"kernelgate-judged-{run_of_tests}"
    folder.mkdir(exist_ok=True)
    kept = folder / hashlib.sha256("\0".join(arguments).encode()).hexdigest()
    with open(kept.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_text(json.dumps(asdict(run_eval(*arguments, timeout_s=1500))))
        return EvalRun(**json.loads(kept.read_text()))


def judged_with_all_detectors(path, left_out=()):
    """The run that judged a submission of this repository, all its cases on the emulator, and its evaluations there.
    One run judges all of a folder's but those `left_out`: for them the judge loads torch, and works out what must come
    out, once."""
    folder = [p for p in sorted(path.parent.glob("*.py")) if has_cuda(p) and p not in left_out]
    run = judged(*(p.relative_to(ROOT).as_posix() for p in folder), *ALL_DETECTORS)
    return run, [e for e in run.results.get("evaluations", []) if e["submission"] == path.stem]


def has_cuda(path):
    """Whether a submission has kernels."""
    return "cuda_sources" in path.read_text()
