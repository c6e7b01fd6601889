"""What usual additions touch: each is made in a copy of the harness, and works with no other change.

A test edits its copy through `House` and runs it; `House.changed` names the files that the addition took.
"""

import importlib.metadata
import shutil
import subprocess
import sys

import pytest

from tests import helpers
from tests.helpers import ROOT, run_timed

pytestmark = pytest.mark.alone

COPIED = ("eval.py", "harness", "problems")
CONTROL = ROOT / "tests" / "fixtures" / "wrong" / "rmsnorm" / "control.py"


class House:
    """A copy of what an evaluation needs."""

    def __init__(self, folder):
        self.root = folder
        for name in COPIED:
            source, copy = ROOT / name, folder / name
            if source.is_dir():
                shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy)
        self._before = self._files()

    def _files(self):
        files = [path for path in self.root.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in files}

    def add(self, path, text):
        """A new file."""
        assert not (self.root / path).exists()
        (self.root / path).write_text(text)

    def edit(self, path, old, new):
        """`new` in place of `old`, which stands once in the file."""
        text = (self.root / path).read_text()
        assert text.count(old) == 1
        (self.root / path).write_text(text.replace(old, new))

    def changed(self):
        """The files that were added or edited."""
        return {path for path, data in self._files().items() if self._before.get(path) != data}

    def python(self, program):
        """What a program prints that imports this harness."""
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=self.root, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def house(tmp_path):
    return House(tmp_path)


PEER = '''"""A trial."""

from torch import nn

DISTRIBUTION = "torch"

IMPLEMENTATIONS = {"rmsnorm": nn.RMSNorm}
'''


def test_a_baseline_is_one_file(house, monkeypatch):
    """It is named by `--against`, judged in a worker of its own, and timed."""
    house.add("harness/peers/trial.py", PEER)
    assert house.changed() == {"harness/peers/trial.py"}
    monkeypatch.setattr(helpers, "ROOT", house.root)
    run = run_timed(CONTROL, "--problem", "rmsnorm", "-k", "768", "--device", "cpu", "--against", "trial")
    assert run.code == 0, run.stderr
    (evaluation,) = run.results["evaluations"]
    (timing,) = [case["timing"] for case in evaluation["cases"] if case["timing"]]
    assert timing["baselines"]["trial"]["version"] == f"torch {importlib.metadata.version('torch')}"
    assert timing["baselines"]["trial"]["median_us"] > 0


DISTRIBUTION = '''def trial(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """All 7."""
    return torch.full(shape, 7.0, dtype=dtype, device=generator.device)


DISTRIBUTIONS: '''

PROBLEM = """import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x


CASES = [dict(name="sevens", shapes=[(2, 3)], dtype="bfloat16", distribution="trial")]
"""

DRAW = """from pathlib import Path

import torch

from harness.problem import load_problem

problem = load_problem(Path("problems/sevens.py"), 0)
(x,) = problem.draw_inputs(problem.cases[0], 1, torch.device("cpu"))
print(x.dtype, x.tolist())
"""


def test_a_distribution_is_one_function(house):
    """Its name in a problem's case is enough."""
    inputs = "harness/inputs.py"
    house.edit(inputs, "DISTRIBUTIONS: ", DISTRIBUTION)
    house.edit(inputs, "huge, non_finite,", "huge, non_finite, trial,")
    assert house.changed() == {inputs}
    house.add("problems/sevens.py", PROBLEM)
    assert house.python(DRAW).split(maxsplit=1) == ["torch.bfloat16", f"{[[7.0] * 3] * 2}\n"]
