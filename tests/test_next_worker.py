"""While a submission is judged the worker of the next one loads, and stands still where times are taken."""

import os
import signal

import pytest

from harness.device.choose import open_device
from harness.device.memory_file import MemoryFile
from harness.events import TimesBegin
from harness.isolation.levels import choose_isolation
from harness.isolation.sandbox import Worker
from harness.isolation.starter import Starter
from harness.judge import Judge
from harness.problem import load_problem
from harness.reasons import Reason
from harness.settings import Settings
from harness.submission import read_submission

PROBLEM = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_init_inputs():
    return []


def get_inputs():
    return [torch.randn(1024, 1024)]


CASES = [dict(name="case", shapes=[(1024, 1024)], timed=True)]
"""

SUBMISSION = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + x
"""


@pytest.fixture
def judging(tmp_path):
    """A judge that times on a CPU, two submissions, what it said, and its starter."""
    (tmp_path / "problem.py").write_text(PROBLEM)
    submissions = []
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(SUBMISSION + f"# {name}\n")
        submissions.append(read_submission(tmp_path / f"{name}.py"))
    problem, memory, events = load_problem(tmp_path / "problem.py", 1), MemoryFile(), []
    starter = Starter("cpu", memory.fd, choose_isolation("auto", "cpu"), [problem.path])
    settings = Settings(seed=7, effort="quick")
    try:
        device = open_device("cpu", memory)
        with Judge(problem, problem.cases, device, starter, settings, ["eager"], events.append) as judge:
            yield judge, submissions, events, starter
    finally:
        starter.end()


def is_judged(evaluation) -> bool:
    """It has a verdict; a machine that others keep busy may leave it without times."""
    return evaluation.reason in (None, Reason.TOO_NOISY)


def test_the_next_submission_runs_in_the_worker_that_was_started_for_it(judging, monkeypatch):
    judge, (one, two), events, starter = judging
    taken = []
    take = starter.take

    def recorded(**options) -> Worker:
        taken.append(take(**options))
        return taken[-1]

    monkeypatch.setattr(starter, "take", recorded)
    assert is_judged(judge.evaluate(one, next_workers=1))
    before = len(taken)
    assert is_judged(judge.evaluate(two))
    assert len(taken) == before, "the second submission started a worker of its own"
    assert sum(isinstance(event, TimesBegin) for event in events) == 2


def test_a_worker_that_was_started_for_nobody_is_ended(judging):
    judge, (one, _two), _events, starter = judging
    judge.evaluate(one, next_workers=1)
    pid = starter._next[0].pid
    os.kill(pid, 0)
    starter.end()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("ready", [False, True])
def test_a_worker_that_is_killed_before_it_is_used_costs_nobody_a_verdict(judging, monkeypatch, ready):
    judge, (one, two), _events, starter = judging
    take, taken = starter.take, []

    def second_killed(**options) -> Worker:
        taken.append(take(**options))
        if len(taken) == 2:
            if ready:
                taken[1].wait_until_ready()
            os.kill(taken[1].pid, signal.SIGKILL)
        return taken[-1]

    monkeypatch.setattr(starter, "take", second_killed)
    assert is_judged(judge.evaluate(one, next_workers=1))
    assert is_judged(judge.evaluate(two))
    assert len(taken) == 3


def test_workers_of_several_submissions_load_together_and_are_used_one_after_the_other(judging, monkeypatch):
    judge, (one, two), _events, starter = judging
    take, taken = starter.take, []

    def recorded(**options) -> Worker:
        taken.append(take(**options))
        return taken[-1]

    monkeypatch.setattr(starter, "take", recorded)
    assert is_judged(judge.evaluate(one, next_workers=2))
    assert len(taken) == 3
    for _ in range(2):
        assert is_judged(judge.evaluate(two, next_workers=0))
    assert len(taken) == 3
    assert is_judged(judge.evaluate(one))
    assert len(taken) == 4
