"""Kernels that are compiled when they are first launched, as Triton's are: a rehearsal on zeros, with compilers.

A program that is started stands in for the compiler: for Triton's, a GPU is needed.
"""

from dataclasses import replace

import pytest

from harness.device.choose import open_device
from harness.device.memory_file import MemoryFile
from harness.events import nobody
from harness.isolation.levels import choose_isolation
from harness.isolation.starter import Starter
from harness.judge import Judge
from harness.problem import load_problem
from harness.settings import Settings
from harness.submission import read_submission

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x)


CASES = [
    dict(name="rows", init=[(48,)], shapes=[(6, 48)], batch=True),
    dict(name="misaligned", init=[(48,)], shapes=[(6, 48)], layout="offset"),
    dict(name="transposed", init=[(32,)], shapes=[(2, 16, 32)], layout="transposed"),
]
{more}
"""

SUBMISSION = """
import os
import subprocess
import time

import torch
import torch.nn as nn

compiled = set()


def compile_for(*form):
    if form not in compiled:
        subprocess.run(["true"], check=True)
        compiled.add(form)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        {before}
        compile_for(x.shape, x.stride(), x.data_ptr() % 16 == 0, torch.is_grad_enabled())
        {after}
        y = (x - x.mean(-1, keepdim=True)).contiguous()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5) * self.weight + self.bias
        if y.requires_grad:
            y.register_hook(lambda dy: compile_for(dy.shape, dy.stride(), dy.data_ptr() % 16 == 0))
        return y
"""

GRADIENTS = """
GRADIENTS = ["x"]
CASES += [
    dict(name=f"dy {layout}", init=[(32,)], shapes=[(2, 16, 32)], upstream=layout)
    for layout in ("transposed", "expanded")
]
"""
OF_THE_DATA = "compile_for(bool(x.any()))"
REFUSES_ZEROS = "assert x.any(), 'all are zero'"


@pytest.fixture
def judge(tmp_path):
    """Judges a submission, `rehearsed` or not, with `before` at the beginning of its forward and `after` behind its
    compiler."""

    def judge(before="pass", after="pass", more="", *, rehearsed=True, timeout_s=60.0):
        problem, submission = tmp_path / "problem.py", tmp_path / "submission.py"
        problem.write_text(PROBLEM.format(more=more))
        submission.write_text(SUBMISSION.format(before=before, after=after))
        loaded = load_problem(problem, 1)
        memory = MemoryFile()
        starter = Starter("cpu", memory.fd, choose_isolation("auto", "cpu"), [problem])
        read = replace(read_submission(submission), gpu_language="Triton" if rehearsed else "")
        settings = Settings(seed=7, timeout_s=timeout_s, timing=False)
        try:
            device = open_device("cpu", memory)
            with Judge(loaded, loaded.cases, device, starter, settings, [], nobody) as judging:
                return judging.evaluate(read)
        finally:
            starter.end()

    return judge


@pytest.mark.parametrize("more", ["", GRADIENTS], ids=["forward", "training step"])
def test_what_is_compiled_at_the_first_launch_is_compiled_in_the_rehearsal(judge, more):
    evaluation = judge(more=more)
    assert evaluation.reason is None, evaluation.message
    assert [case.name for case in evaluation.cases][:3] == ["rows", "misaligned", "transposed"]


def test_without_a_rehearsal_it_is_refused_its_compiler(judge):
    evaluation = judge(rehearsed=False)
    assert evaluation.reason == "raised"
    assert "A submission can start processes only until its first call" in evaluation.message


def test_what_no_rehearsal_can_compile_is_told_in_a_sentence(judge):
    evaluation = judge(OF_THE_DATA)
    assert evaluation.reason == "raised"
    assert "This call needs a compiler, and none can be started after the rehearsal" in evaluation.message


def test_what_a_rehearsal_raises_rejects_nothing(judge):
    assert judge(after=REFUSES_ZEROS).reason is None


def test_a_later_refusal_says_what_the_rehearsal_ended_with(judge):
    evaluation = judge(REFUSES_ZEROS)
    assert evaluation.reason == "raised"
    assert "A rehearsal ended with AssertionError at line" in evaluation.message
    assert "all are zero" in evaluation.message


def test_an_operator_is_as_forbidden_in_a_rehearsal(judge):
    hidden = "try: x.any() or torch.layer_norm(x, x.shape[-1:])\n        except Exception: pass"
    assert judge(hidden).reason == "forbidden_op"


def test_a_process_that_a_rehearsal_leaves_is_found(judge):
    assert judge("compiled or subprocess.Popen(['sleep', '60'])").reason == "extra_processes"


def test_a_rehearsal_that_exits_is_told_as_one(judge):
    evaluation = judge("x.any() or os._exit(0)")
    assert (evaluation.reason, evaluation.cases) == ("exited", [])
    assert evaluation.message.startswith("While it was rehearsed on zeros: ")
