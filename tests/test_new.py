"""`eval.py new`: what it writes is accepted, whatever the problem."""

import pytest

from tests.helpers import judged, run_eval

# A problem that nothing is shipped for, in KernelBench's form, with gradients.
SCALED = """
import torch
import torch.nn as nn

GRADIENTS = True


class Model(nn.Module):
    def __init__(self, size):
        super(Model, self).__init__()
        self.scale = nn.Parameter(torch.randn(size))

    def forward(self, x):
        return torch.tanh(x * self.scale)


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(4, 8)]
"""


def new(problem, file):
    return run_eval("new", problem, file, json_results=False)


@pytest.mark.parametrize("problem", ["rmsnorm", "scaled.py"])
def test_what_is_written_is_accepted(tmp_path, problem):
    if problem == "scaled.py":
        problem = tmp_path / problem
        problem.write_text(SCALED)
    file = tmp_path / "not_there_yet" / "mine.py"
    run = new(problem, file)
    assert run.code == 0, run.stderr
    assert f"python eval.py {file} --problem {problem}" in run.stdout
    run = judged(str(file), "--problem", str(problem), "--device", "emulator", "--no-timing")
    (evaluation,) = run.results["evaluations"]
    assert evaluation["status"] == "accepted", evaluation["message"]


def test_it_begins_with_the_reference_and_names_what_it_was_begun_from(tmp_path):
    file = tmp_path / "mine.py"
    assert new("layernorm", file).code == 0
    text = file.read_text()
    assert text.startswith("# Begun from submissions/layernorm/rung")
    assert "#     class Model(nn.Module):" in text
    assert "ALSO_FOR" not in text


def test_what_calls_the_reference_says_so(tmp_path):
    """It is rejected where the problem forbids the reference's operators."""
    problem = tmp_path / "norm.py"
    problem.write_text(
        "import torch.nn as nn\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
        "        return nn.functional.group_norm(x, 2)\n\nCASES = [dict(name='a', shapes=[(2, 8, 3)])]\n"
    )
    run = new(problem, tmp_path / "mine.py")
    assert run.code == 0, run.stderr
    assert "Put your kernel in place of super().forward(*inputs)" in run.stdout
    assert "norm names no FORBIDDEN_OPS" in run.stdout
    problem.write_text("FORBIDDEN_OPS = ['native_group_norm']\n" + problem.read_text())
    run = new(problem, tmp_path / "another.py")
    assert "Put your kernel" in run.stdout and "names no FORBIDDEN_OPS" not in run.stdout


def test_nothing_is_overwritten_and_a_problem_must_be_one(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("mine")
    run = new("layernorm", file)
    assert run.code == 2 and "exists" in run.stderr
    assert file.read_text() == "mine"
    run = new("no_such_problem", tmp_path / "other.py")
    assert run.code == 2 and "no_such_problem" in run.stderr
    assert not (tmp_path / "other.py").exists()
