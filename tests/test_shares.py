"""`--jobs`: a run whose submissions are judged by several processes side by side."""

import contextlib
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys

import psutil
import pytest

from harness.isolation.sandbox import PROCESSORS
from harness.shares import start_on
from tests.helpers import ROOT

RIGHT = """
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.weight, self.bias = (nn.Parameter(getattr(nn.LayerNorm(normalized_shape), n)) for n in ("weight", "bias"))
        self.eps = 1e-5

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).square().mean(-1, keepdim=True)
        return (x - mean) / (variance + self.eps).sqrt() * self.weight + self.bias
"""
WRONG = RIGHT.replace("self.eps = 1e-5", "self.eps = 1e-2")
# As long as a call may take.
WAITS = RIGHT.replace("    def forward(self, x):\n", "    def forward(self, x):\n        import time; time.sleep(50)\n")
OPTIONS = ("--problem", "layernorm", "--device", "cpu", "-k", "one trailing dim", "--no-timing", "--no-store")


@pytest.fixture
def folder(tmp_path):
    """Writes submissions, and gives their folder."""

    def write(**sources):
        for name, source in sources.items():
            (tmp_path / f"{name}.py").write_text(f"# {name}\n{source}")
        return tmp_path

    return write


def _says_which_processors(talk):
    """In a process of its own, which loads this module."""
    talk.send(sorted(PROCESSORS))


def _start(folder, *options):
    command = [
        sys.executable,
        ROOT / "eval.py",
        folder,
        *OPTIONS,
        "--jobs",
        "2",
        "--json",
        folder / "out.json",
        *options,
    ]
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _evaluations(folder):
    return json.loads((folder / "out.json").read_text())["evaluations"]


def _judges(process):
    """The processes that judge for this one; one may be done in this moment."""
    judges = []
    for child in psutil.Process(process.pid).children():
        with contextlib.suppress(psutil.Error):
            judges += [child] if any("spawn_main" in word for word in child.cmdline()) else []
    return judges


def _family(judges):
    family = [*judges]
    for judge in judges:
        with contextlib.suppress(psutil.Error):
            family += judge.children(recursive=True)
    return family


def _read_until(process, said):
    """Read what it says, to the line that has `said`."""
    while said not in (line := process.stderr.readline()):
        assert line, f"it ended without {said!r}"


def test_verdicts_come_in_the_order_of_the_files(folder):
    path = folder(a=RIGHT, b=WRONG, c=RIGHT, d=WRONG, e="1 / 0\n")
    process = _start(path)
    _, errors = process.communicate()
    assert process.returncode == 1, errors
    found = [(e["submission"], e["status"], e["reason"]) for e in _evaluations(path)]
    assert found == [
        ("a", "accepted", None), ("b", "rejected", "wrong_output"), ("c", "accepted", None),
        ("d", "rejected", "wrong_output"), ("e", "rejected", "load_failed"),
    ]  # fmt: skip
    assert len({e["seed"] for e in _evaluations(path)}) == 1
    assert re.findall(r"^(\d) of 5: ", errors, re.MULTILINE) == ["1", "2", "3", "4", "5"]


def test_a_process_that_is_killed_costs_the_submission_that_it_judges(folder):
    path = folder(a=WAITS, b=WRONG, c=RIGHT)  # the first process has a and c
    process = _start(path, "-v")
    _read_until(process, "a: case")
    min(_judges(process), key=lambda judge: judge.create_time()).kill()
    process.communicate()
    found = {e["submission"]: (e["status"], e["reason"]) for e in _evaluations(path)}
    assert found == {"a": ("error", "not_judged"), "b": ("rejected", "wrong_output"), "c": ("accepted", None)}
    (killed,) = [e for e in _evaluations(path) if e["submission"] == "a"]
    assert killed["message"] == "The process that judged it ended by SIGKILL. Run it again."


def test_files_of_one_name_are_each_judged_when_a_process_is_killed(folder, tmp_path):
    for part, source in dict(a=WAITS, b=RIGHT, c=WRONG).items():
        (tmp_path / part).mkdir()
        (tmp_path / part / "mine.py").write_text(f"# {part}\n{source}")
    process = _start(tmp_path, "-v")  # the first process has those of a and c
    for _ in "ab":
        _read_until(process, "mine: case")
    min(_judges(process), key=lambda judge: judge.create_time()).kill()
    process.communicate()
    assert [e["status"] for e in _evaluations(tmp_path)] == ["error", "accepted", "rejected"]


def test_what_is_stopped_reports_what_it_has_and_leaves_no_process(folder):
    path = folder(a=WAITS, b=WRONG)
    process = _start(path)
    _read_until(process, "wrong_output")
    descendants = _family(_judges(process))
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 3
    assert "Stopped by the keyboard or by SIGTERM" in errors
    assert [e["submission"] for e in _evaluations(path)] == ["b"]
    psutil.wait_procs(descendants, timeout=20)
    assert [each for each in descendants if each.is_running() and each.status() != psutil.STATUS_ZOMBIE] == []


def test_what_is_wrong_with_the_problem_is_said_once(folder, tmp_path):
    path = folder(a=RIGHT, b=WRONG)
    process = _start(path, "-k", "no such case")
    _, errors = process.communicate()
    assert process.returncode == 2
    assert errors.count("no such case") == 1
    assert os.listdir(path).count("out.json") == 0


def test_a_process_has_processors_of_its_own_when_it_is_loaded():
    """By them it says how much it builds at a time, and where submissions may run."""
    context = multiprocessing.get_context("spawn")
    heard, said = context.Pipe()
    process = context.Process(target=_says_which_processors, args=(said,))
    all_of_them = os.sched_getaffinity(0)
    start_on([max(all_of_them)], process)
    assert heard.recv() == [max(all_of_them)]
    process.join()
    assert os.sched_getaffinity(0) == all_of_them
