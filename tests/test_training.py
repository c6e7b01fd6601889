"""Training steps and random outputs, beside the wrong kernels in fixtures/wrong: what is shown, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

from harness.errors import UsageError
from harness.oracle import dropout
from harness.paths import PROBLEMS, emulator_cache
from harness.problem import load_problem
from tests.emulator.conftest import HERE, Emulator
from tests.helpers import ROOT, run_eval

FIXTURES = Path(__file__).parent / "fixtures"
CONTROL = FIXTURES / "wrong" / "layernorm_train" / "control.py"


@pytest.fixture(scope="module")
def fused():
    answer = Emulator(emulator_cache()).run(HERE / "fused_layer_norm.py")
    assert "error" not in answer, answer["error"]
    assert answer["findings"] == []
    return answer["result"]


def test_the_functional_form_gives_what_layer_norm_gives(fused):
    assert fused["error"] < 1e-3


def test_the_functional_form_compiles_as_one_graph(fused):
    assert fused["compiled_is_plain"]


def test_the_functional_form_computes_in_float32_under_autocast(fused):
    assert fused["autocast"] == ["torch.float32", "torch.float16"]


def test_the_functional_form_names_a_wrong_shape(fused):
    assert "normalized_shape" in fused["wrong_shape"]


def test_atomic_sums_are_rejected_as_not_deterministic():
    path = FIXTURES / "training" / "atomic_dgamma.py"
    run = run_eval(path, "--problem", "layernorm_train", "--device", "emulator", "-k", "5,000 rows")
    (evaluation,) = run.results["evaluations"]
    assert (evaluation["status"], evaluation["reason"]) == ("rejected", "not_deterministic"), evaluation["message"]
    assert "'ln.weight'" in evaluation["message"] or "'ln.bias'" in evaluation["message"]


def problem_with(tmp_path, extra):
    path = tmp_path / "problem.py"
    path.write_text((PROBLEMS / "layernorm_train.py").read_text() + "\n" + extra)
    return path


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ("GRADIENTS = 3", "GRADIENTS is 3"),
        ('GRADIENTS = False\nCASES = [case("a", (2, 9), upstream="expanded")]', "GRADIENTS is not set"),
        ('CASES = [case("a", (2, 9), gradcheck=True)]', "float64"),
        ('CASES = [case("a", (2, 9), timed=True, upstream="expanded")]', "cannot be 'expanded'"),
    ],
)
def test_a_wrong_declaration_is_named(tmp_path, extra, said):
    with pytest.raises(UsageError, match=said):
        load_problem(problem_with(tmp_path, extra), 0)


@pytest.mark.parametrize(
    ("extra", "said"), [('GRADIENTS = ["ln.gamma"]', "ln.gamma"), ('RANDOM = {0: "ln"}', "not an nn.Dropout")]
)
def test_names_that_the_reference_lacks_are_named(tmp_path, extra, said):
    run = run_eval(CONTROL, "--problem", problem_with(tmp_path, extra), "-k", "1x7")
    assert run.code == 2
    assert said in run.stderr


def test_gradients_of_some_names_alone(tmp_path):
    run = run_eval(
        FIXTURES / "wrong" / "layernorm_train" / "gradient_of_bias_missing.py",
        *("--problem", problem_with(tmp_path, 'GRADIENTS = ["x", "ln.weight"]'), "-k", "4x128"),
    )
    assert run.code == 0, run.results


def honest(p, shape, seed, calls=3):
    generator = torch.Generator().manual_seed(seed)
    return [(torch.rand(shape, generator=generator) < p).numpy() for _ in range(calls)]


def cuts(p, shape, places):
    """Masks that begin at these places of one table."""
    (table,) = honest(p, (max(places) + shape[0] * shape[1],), 9, 1)
    return [table[place : place + shape[0] * shape[1]].reshape(shape) for place in places]


@pytest.mark.parametrize("p", [0.0, 0.01, 0.3, 0.9, 1.0])
def test_honest_masks_are_not_called_unlikely(p):
    assert dropout.unlikely(honest(p, (64, 300), 1), p, dropout.FALSE_ALARM_RATE) == ""


def test_the_false_alarm_rate_is_what_it_says():
    """A rate of 5% instead of one in a million, so that it can be counted: 400 honest sets of masks."""
    alarms = sum(bool(dropout.unlikely(honest(0.2, (16, 96), seed), 0.2, 0.05)) for seed in range(400))
    assert alarms <= 34  # 20 are allowed on average, and 34 or more have a probability of 0.2%


@pytest.mark.parametrize(
    ("p", "masks", "said"),
    [
        (0.1, honest(0.1, (64, 512), 3, 2) * 2, "calls 0 and 2 share"),
        (0.3, [np.repeat(m, 4, axis=1) for m in honest(0.3, (64, 256), 4)], "elements 1 apart"),
        (0.3, [np.repeat(m, 2, axis=0) for m in honest(0.3, (64, 256), 5)], "elements 256 apart"),
        (
            0.1,
            [np.tile(m.reshape(-1, 1, 5), (1, 2, 1)).reshape(64, -1) for m in honest(0.1, (64, 250), 8)],
            "elements 5 apart",
        ),
        (0.1, honest(0.12, (256, 512), 6), "elements were dropped"),
        (0.3, cuts(0.3, (64, 256), (7_000, 0, 16_000)), "call 1 has the mask of call 0, +7,000 elements away"),
        (0.9, cuts(0.9, (128, 256), (0, 90_000, 30_001)), "call 2 has the mask of call 0, -30,001 elements away"),
    ],
)
def test_masks_that_are_not_independent_are_named(p, masks, said):
    assert said in dropout.unlikely(masks, p, dropout.FALSE_ALARM_RATE)


A_ZERO = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln = nn.LayerNorm(33, bias=False)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return self.dropout(self.ln(x))


GRADIENTS = True
RANDOM = {0: "dropout"}


def get_inputs():
    x = torch.randn(1000, 33)
    x[:201] = torch.arange(-16.0, 17.0)
    x[:200, 16] = 1e-5  # nearly 0: a tenth of them are dropped
    x[200, 16] = 0.0  # normalised to 0, and kept
    return [x]


def get_init_inputs():
    return []
"""
ITS_ANSWER = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(33))

    def forward(self, x):
        centred = x - x.mean(1, keepdim=True)
        y = centred * torch.rsqrt(centred.square().mean(1, keepdim=True) + 1e-5) * self.weight
        return y * (torch.rand(x.shape) >= 0.1) / 0.9 if self.training else y
"""


def test_an_element_that_is_kept_may_be_zero(tmp_path):
    """Its gradient is that of an element that was kept, and its output looks like one that was dropped. So do many that
    were dropped and may be 0 by their tolerance."""
    problem, submission = tmp_path / "problem.py", tmp_path / "submission.py"
    problem.write_text(A_ZERO)
    submission.write_text("import torch\nfrom torch import nn\n" + ITS_ANSWER)
    run = run_eval(submission, "--problem", problem)
    assert run.code == 0, run.results


def test_what_is_added_up_in_16_bits_is_what_two_passes_give():
    """Drawn so that a column's sum is small beside its 37 terms: the passes must not differ by what a dtype rounds."""
    words = ("--problem", "layernorm_train_dtypes", "--device", "cpu", "-k", "bf16, D = 1", "--seed", 8018287213944526)
    run = run_eval(ROOT / "tests/fixtures/wrong/layernorm_train_dtypes/control.py", *words)
    assert run.code == 0, run.results


def test_every_training_problem_ships_a_plain_and_a_fast_submission():
    for path in PROBLEMS.glob("*.py"):
        problem = load_problem(path, 0)
        if problem.gradients is not None:
            assert len(list((ROOT / "submissions" / path.stem).glob("*.py"))) >= 2
