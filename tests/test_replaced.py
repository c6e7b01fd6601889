"""Which operators a submission is there to replace, where the problem does not say."""

import pytest

from tests.helpers import run_eval

PROBLEM = """
import torch
import torch.nn as nn

{more}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = {first}
        self.norm = nn.LayerNorm(12)

    def forward(self, x):
        return torch.nn.functional.gelu(self.norm(self.first(x)))


def get_init_inputs():
    return []


def get_inputs():
    return [torch.randn({shape})]
"""

# GELU alone is replaced.
SUBMISSION = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = {first}
        self.norm = nn.LayerNorm(12)

    def forward(self, x):
        y = self.norm(self.first(x))
        return 0.5 * y * (1 + torch.erf(y / 2**0.5))
"""

CONVOLUTION = "nn.Conv2d(3, 4, 3)"


@pytest.mark.parametrize(
    ("first", "more", "verdict"),
    [
        (CONVOLUTION, "", ("accepted", None)),
        ("nn.AvgPool2d(3, 1)", "", ("accepted", None)),
        ("nn.ReLU()", "", ("rejected", "forbidden_op")),
        (CONVOLUTION, "FORBIDDEN_OPS = ('gelu',)", ("rejected", "forbidden_op")),
    ],
    ids=["behind a convolution", "behind a pooling", "with little else", "where the problem says what is replaced"],
)
def test_a_normalisation_that_was_left_alone(first, more, verdict, tmp_path):
    width = 12 if first == "nn.ReLU()" else 14
    problem, submission = tmp_path / "problem.py", tmp_path / "submission.py"
    problem.write_text(PROBLEM.format(first=first, more=more, shape=f"2, 3, {width}, {width}"))
    submission.write_text(SUBMISSION.format(first=first))
    run = run_eval(submission, "--problem", problem)
    (evaluation,) = run.results["evaluations"]
    assert (evaluation["status"], evaluation["reason"]) == verdict, evaluation["message"]
    noted = [note["operators"] for note in evaluation["noted"] if note["note"] == "may_run"]
    assert noted == ([["native_layer_norm"]] if verdict[0] == "accepted" else [])
    if noted:
        assert "Submissions may call native_layer_norm" in " ".join(evaluation["notes"])


IN_INIT = """
import torch
import torch.utils.cpp_extension as extensions


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {builds}

    def forward(self, x):
        return {forward}
"""
TEXT = "at::Tensor twice(at::Tensor x) { return x + x; }"
BUILDS = f'self.own = extensions.load_inline("own", "{TEXT}", functions=["twice"])'
TWICE = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return 2 * x


def get_init_inputs():
    return []


def get_inputs():
    return [torch.randn(12)]
"""


@pytest.mark.parametrize(
    ("builds", "forward", "has_none"),
    [("pass", "x + x", True), (BUILDS, "self.own.twice(x)", False)],
    ids=["none", "built in __init__"],
)
def test_a_submission_without_a_kernel_is_noted(builds, forward, has_none, tmp_path):
    problem, submission = tmp_path / "problem.py", tmp_path / "submission.py"
    problem.write_text(TWICE)
    submission.write_text(IN_INIT.format(builds=builds, forward=forward))
    run = run_eval(submission, "--problem", problem, "--no-timing", "--timeout", 300)  # it builds in a call
    (evaluation,) = run.results["evaluations"]
    assert evaluation["status"] == "accepted", evaluation["message"]
    assert any(note["note"] == "no_kernel" for note in evaluation["noted"]) is has_none


def test_a_default_that_is_another_than_models_is_noted(tmp_path):
    """The cases give the argument, so that no result shows it; one that is no plain value is nobody's."""
    text = """
import torch

class Model(torch.nn.Module):
    def __init__(self, eps=1e-5, mode="mean", shape=(8,)):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
"""
    problem, submission = tmp_path / "problem.py", tmp_path / "submission.py"
    problem.write_text(text + "\nCASES = [dict(name='a', shapes=[(4, 8)], init=[0.5, 'mean'])]\n")
    said = {}
    for default in ("1e-5", "1e-2", "sum([])", "{[]}", "-True"):
        submission.write_text(text.replace("Model(", "ModelNew(").replace("eps=1e-5", f"eps={default}"))
        (evaluation,) = run_eval(submission, "--problem", problem, "--no-timing").results["evaluations"]
        said[default] = [n["arguments"] for n in evaluation["noted"] if n["note"] == "other_defaults"]
    assert said == {"1e-5": [], "1e-2": [["eps=0.01 (Model: 1e-05)"]], "sum([])": [], "{[]}": [], "-True": []}
