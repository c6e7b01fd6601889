"""`eval.py audit`: lazy answers on real problems, and a problem that is too weak."""

import json

import pytest

from tests.helpers import FORMULA, run_eval

WEAK = """
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x * 0 + 1

CASES = [dict(name="ones", shapes=[(4, 8)]), dict(name="no rows", shapes=[(0, 8)])]
"""


MAXIMA = [
    "x.amax(1)", "x.max(dim=1)[0]", "x.argmax(-1)", "x.topk(2).values", "x.cummax(1).values", "x.max()",
    "nn.functional.max_pool1d(x, 3)", "nn.functional.max_pool2d(x, 2)", "nn.functional.adaptive_max_pool1d(x, 5)",
]  # fmt: skip


def audit(*words):
    run = run_eval("audit", *words, "--seed", "1", "--json", json_results=False)
    return run.code, json.loads(run.stdout)


def test_no_lazy_answer_passes_all_cases_of_a_problem_here():
    code, found = audit("rmsnorm")
    assert code == 0
    answers = {tried["answer"]: tried for tried in found["answers"]}
    nothing_to_leave_out = {"no bias", "maxima from 0", "softmax without its maximum"}
    assert all(tried["failed"] for name, tried in answers.items() if name not in nothing_to_leave_out)
    assert not any(answers[name]["passed"] for name in nothing_to_leave_out)
    assert len(answers["zeros"]["failed"]) == found["cases"] - 1  # of rows of zeros they are the answer
    assert "has no elements" in found["left_out"]["no rows"]


def test_a_problem_that_ones_pass_is_refused(tmp_path):
    path = tmp_path / "weak.py"
    path.write_text(WEAK)
    code, found = audit(str(path))
    assert code == 1
    passed = {tried["answer"] for tried in found["answers"] if tried["passed"] and not tried["failed"]}
    assert {"ones", "the first row in all", "the answer to other data"} <= passed
    assert not passed & {"zeros", "half the rows", "the input"}


def would_be_accepted(tmp_path, formula, data, arguments="x"):
    """The answers that would be accepted, and those that have something to leave out."""
    path = tmp_path / "one_case.py"
    path.write_text(FORMULA.format(formula=formula, data=data, arguments=arguments))
    _, found = audit(str(path))
    answers = found["answers"]
    accepted = {tried["answer"] for tried in answers if tried["passed"] and not tried["failed"]}
    return accepted, {tried["answer"] for tried in answers if not tried["right"]}


@pytest.mark.parametrize("formula", MAXIMA)
def test_maxima_that_begin_with_0_pass_on_positive_data_alone(tmp_path, formula):
    assert "maxima from 0" in would_be_accepted(tmp_path, formula, "torch.rand(3, 4, 30)")[0]
    accepted, tried = would_be_accepted(tmp_path, formula, "torch.randn(3, 4, 30) - 3")
    assert "maxima from 0" in tried - accepted


@pytest.mark.parametrize("formula", ["torch.relu(x).amax(1)", "x.abs().amax(1)", "x.sum(1)"])
def test_a_maximum_of_what_is_never_negative_may_begin_with_0(tmp_path, formula):
    assert "maxima from 0" not in would_be_accepted(tmp_path, formula, "torch.rand(3, 4, 30)")[1]


@pytest.mark.parametrize("formula", ["x.softmax(1)", "x.log_softmax(-1)", "x.logsumexp(1)", "x.logsumexp(1, True)"])
def test_a_softmax_without_its_maximum_passes_where_no_exponential_overflows(tmp_path, formula):
    assert "softmax without its maximum" in would_be_accepted(tmp_path, formula, "torch.rand(3, 30)")[0]
    accepted, tried = would_be_accepted(tmp_path, formula, "torch.randn(3, 30) + 100")
    assert "softmax without its maximum" in tried - accepted


def test_a_softmax_of_bounded_values_needs_no_maximum(tmp_path):
    formula = "x.tanh().softmax(1)"
    assert "softmax without its maximum" not in would_be_accepted(tmp_path, formula, "torch.rand(3, 30)")[1]


def test_small_elements_that_the_error_bound_does_not_see_are_told(tmp_path):
    data = "torch.randn(9, 30), torch.rand(9, 30) > 0.5"
    answer = "zeros for what is small"
    assert answer in would_be_accepted(tmp_path, "torch.where(m, x * 1e9, x)", data, "x, m")[0]
    assert answer not in would_be_accepted(tmp_path, "x.masked_fill(m, -1e9)", data, "x, m")[0]


def test_what_needs_too_much_memory_is_named(tmp_path):
    path = tmp_path / "weak.py"
    path.write_text(WEAK)
    run = run_eval("audit", str(path), "--memory", "0.000001", json_results=False)
    assert "not audited: ones needs some" in run.stdout


def test_a_problem_that_is_none_is_said():
    name = "no_such_problem"
    run = run_eval("audit", name, json_results=False)
    assert run.code == 2
    assert name in run.stderr
