"""`eval.py audit`: lazy answers on real problems, and a problem that is too weak."""

import json

from tests.helpers import run_eval

WEAK = """
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x * 0 + 1

CASES = [dict(name="ones", shapes=[(4, 8)]), dict(name="no rows", shapes=[(0, 8)])]
"""


def audit(*words):
    run = run_eval("audit", *words, "--seed", "1", "--json", json_results=False)
    return run.code, json.loads(run.stdout)


def test_no_lazy_answer_passes_all_cases_of_a_problem_here():
    code, found = audit("rmsnorm")
    assert code == 0
    answers = {tried["answer"]: tried for tried in found["answers"]}
    assert all(tried["failed"] for name, tried in answers.items() if name != "no bias")
    assert not answers["no bias"]["passed"]  # there is none to leave out
    assert len(answers["zeros"]["failed"]) == found["cases"]
    assert "has no elements" in found["left_out"]["no rows"]


def test_a_problem_that_ones_pass_is_refused(tmp_path):
    path = tmp_path / "weak.py"
    path.write_text(WEAK)
    code, found = audit(str(path))
    assert code == 1
    passed = {tried["answer"] for tried in found["answers"] if tried["passed"] and not tried["failed"]}
    assert {"ones", "the first row in all", "the answer to other data"} <= passed
    assert not passed & {"zeros", "half the rows", "the input"}


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
