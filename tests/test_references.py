"""References that are unlike most: as a submission each is right, or its problem is refused with a sentence."""

import pytest

from tests.helpers import run_eval

PROBLEM = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""

PLAIN = "torch.randn(16, 24)"


def judged(tmp_path, init, forward, inputs):
    problem, submission = tmp_path / "problem.py", tmp_path / "submission.py"
    problem.write_text(PROBLEM.format(init=init, forward=forward, inputs=inputs))
    submission.write_text(problem.read_text().replace("Model(", "ModelNew("))
    return run_eval(submission, "--problem", problem, "--no-timing")


@pytest.mark.parametrize(
    ("init", "forward", "inputs"),
    [
        ("pass", "return torch.nn.functional.silu(x), x", PLAIN),
        ("pass", "return x.view(16, 4, 6).transpose(0, 1)", PLAIN),
        ('self.register_buffer("order", torch.randperm(24))', "return x[:, self.order] * 2", PLAIN),
        ('self.register_buffer("mask", torch.rand(24), persistent=False)', "return x * self.mask", PLAIN),
        ("pass", "return x.square()", "300 * torch.rand(16, 24).half()"),
        ("pass", "return torch.exp(x)", "60 * torch.randn(16, 24)"),
        ('self.register_buffer("calls", torch.zeros(()))', "self.calls += 1; return 2 * x", PLAIN),
        ("pass", "return ((x > 0).long() << 53) - 1", PLAIN),
    ],
    ids=[
        "an input returned", "a view of an input", "a table drawn at random", "a buffer in no state_dict",
        "beyond float16", "beyond float32", "calls counted", "the largest integers",
    ],
)  # fmt: skip
def test_the_reference_itself_is_right(init, forward, inputs, tmp_path):
    run = judged(tmp_path, init, forward, inputs)
    assert run.code == 0, run.stderr or run.results["evaluations"][0]["message"]


@pytest.mark.parametrize(
    ("init", "forward", "inputs", "said"),
    [
        (
            'self.register_buffer("average", torch.zeros(24))',
            "self.average.lerp_(x.mean(0), 0.5); return x - self.average",
            PLAIN,
            "keeps something from call to call",
        ),
        ("pass", "return (x > 0).long() << 53", PLAIN, "integers of 2^53 or more"),
        ("pass", "return ((x > 0).long() - 2).view(torch.uint64)", PLAIN, "integers of 2^53 or more"),
        ("pass", "return 2 * x", "torch.randn(24, 16).t()", "with the strides (1, 16) for the shape (16, 24)"),
    ],
    ids=["an average kept", "larger integers", "integers without a sign", "a transposed input"],
)
def test_what_cannot_be_judged_is_said_to_be_the_problems(init, forward, inputs, said, tmp_path):
    run = judged(tmp_path, init, forward, inputs)
    assert run.code == 2
    assert said in run.stderr


MASK = PROBLEM.format(
    init='self.register_buffer("mask", torch.ones(24).cumsum(0) > 12, persistent=False)',
    forward="return x.masked_fill(self.mask, 0.0)",
    inputs=PLAIN,
)
NO_MASK = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.cat([x[:, :12], torch.zeros_like(x[:, 12:])], 1)
"""


def test_a_buffer_in_no_state_dict_needs_no_place(tmp_path):
    problem, submission = tmp_path / "problem.py", tmp_path / "submission.py"
    problem.write_text(MASK)
    submission.write_text(NO_MASK)
    run = run_eval(submission, "--problem", problem, "--no-timing")
    assert run.code == 0, run.results["evaluations"][0]["message"]


@pytest.mark.parametrize(
    ("init", "forward", "inputs", "alike"),
    [
        ("self.rates = nn.Parameter(torch.arange(24.0).log1p())", "return x * self.rates", PLAIN, ["'rates'"]),
        ("pass", "return x.relu()", "torch.ones(16, 24)", ["input 'x'"]),
        ("self.norm = nn.BatchNorm1d(24).eval()", "return x * self.norm.running_var", PLAIN, []),
        ("self.linear = nn.Linear(24, 4)", "return self.linear(x)", PLAIN, []),
    ],
)
def test_what_a_problem_never_draws_is_said(init, forward, inputs, alike, tmp_path):
    """A submission could leave it out, and be right."""
    (evaluation,) = judged(tmp_path, init, forward, inputs).results["evaluations"]
    assert evaluation["status"] == "accepted"
    noted = [note["names"] for note in evaluation["noted"] if note["note"] == "same_in_each_draw"]
    assert noted == ([alike] if alike else [])


@pytest.mark.parametrize(
    ("forward", "constant"),
    [
        ("return (x - x.mean(1, keepdim=True)).sum(1, keepdim=True).round() * 0 + 2, x", [("output 0", 2.0)]),
        ("return x.clamp(max=0).max(), x.abs().lt(-1)", [("output 1", 0.0)]),  # one element alone says nothing
        ("return x.relu()", []),
        ("return x.abs().neg().log2().nan_to_num(float('inf')) * 2", []),  # JSON has no infinity
    ],
)
def test_an_output_that_is_one_number_is_said(forward, constant, tmp_path):
    """As those of KernelBench's 80_Gemm_Max_Subtract_GELU, where nothing has to be computed."""
    (evaluation,) = judged(tmp_path, "pass", forward, PLAIN).results["evaluations"]
    assert evaluation["status"] == "accepted"
    noted = [(n["output"], n["value"]) for n in evaluation["noted"] if n["note"] == "same_in_each_element"]
    assert noted == constant


@pytest.mark.parametrize(
    ("forward", "outputs"),
    [
        ("return torch.where(x > 0, x * 1e9, x), x * 2", ["output 0"]),
        ("return x.masked_fill(x > 0, -1e9)", []),
        ("return x.relu()", []),
        ("return x.bfloat16() * 3", []),
    ],
)
def test_elements_that_the_error_bound_does_not_see_are_said(forward, outputs, tmp_path):
    """Beside far larger ones, where zeros would be right in place of all else. Constants are not among these."""
    (evaluation,) = judged(tmp_path, "pass", forward, PLAIN).results["evaluations"]
    assert evaluation["status"] == "accepted"
    noted = [note for note in evaluation["noted"] if note["note"] == "small_unseen"]
    assert [note["output"] for note in noted] == outputs
    assert all(0.3 < note["share"] < 0.7 for note in noted)


@pytest.mark.parametrize(
    ("init", "forward", "said"),
    [
        ("pass", "return x - x.mean(0) if self.training else x", True),
        ("pass", "return x - x.mean(0)", False),
        ("self.eval()", "return x - x.mean(0) if self.training else x", False),
        ("self.inner = nn.Identity().eval()", "return x - x.mean(0) if self.inner.training else x", False),
    ],
)
def test_a_mode_that_is_not_judged_is_said(init, forward, said, tmp_path):
    """What BatchNorm is without its operator. The mode that a Model gives itself is its own."""
    (evaluation,) = judged(tmp_path, init, forward, PLAIN).results["evaluations"]
    assert evaluation["status"] == "accepted", evaluation["message"]
    assert ("training_alone" in [note["note"] for note in evaluation["noted"]]) == said


def test_a_weight_that_a_training_step_never_draws_is_said(tmp_path):
    """The 0 that its other weights have makes it no other."""
    forward, rates = "return x * self.rates", "self.rates = nn.Parameter(torch.arange(24.0).log1p())"
    text = PROBLEM.format(init=rates, forward=forward, inputs=PLAIN)
    problem, submission = tmp_path / "problem.py", tmp_path / "submission.py"
    problem.write_text(text + "GRADIENTS = True\n")
    submission.write_text(text.replace("Model(", "ModelNew("))
    (evaluation,) = run_eval(submission, "--problem", problem, "--no-timing").results["evaluations"]
    assert evaluation["status"] == "accepted", evaluation["message"]
    assert ["'rates'"] in [note["names"] for note in evaluation["noted"] if note["note"] == "same_in_each_draw"]


TRAINED = """
import torch
from torch import nn

GRADIENTS = {gradients}


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.y = torch.exp(x)
        return ctx.y

    @staticmethod
    def backward(ctx, upstream):
        return upstream * ctx.y


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, a, b):
        {forward}


def get_inputs():
    return [torch.randn(16, 24), torch.randn(16, 24)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("init", "forward", "gradients"),
    [
        ("pass", "return a + b", True),
        ("pass", "return torch.cat([a, b])", True),
        ("pass", "return a * 2, b * 3", True),
        ("pass", "return a * 2, b * 3", ["a"]),
        ("pass", "return Exp.apply(a) * b", True),
        ("pass", "return Exp.apply(a)", ["a"]),
        ("self.scale = nn.Parameter(torch.rand(24))", "return a * self.scale, self.scale", True),
        ("self.linear = nn.Linear(24, 24)", "self.last = self.linear(a).softmax(-1); return self.last * b", True),
        ("self.conv = nn.Conv1d(1, 8, 3)", "return self.conv(a[:, None]) * b.mean()", True),
        ("self.scale = nn.Parameter(torch.rand(24))", "return a / self.scale + b", True),
    ],
    ids=[
        "the upstream gradient itself", "a part of it", "outputs of one input each", "one of them alone",
        "an output kept on the way", "an output kept", "a parameter returned", "a result kept", "a convolution",
        "a division by a weight",
    ],
)  # fmt: skip
def test_the_reference_itself_is_right_in_a_training_step(init, forward, gradients, tmp_path):
    problem, submission = tmp_path / "problem.py", tmp_path / "submission.py"
    problem.write_text(TRAINED.format(init=init, forward=forward, gradients=gradients))
    submission.write_text(problem.read_text().replace("Model(", "ModelNew("))
    run = run_eval(submission, "--problem", problem, "--no-timing")
    assert run.code == 0, run.stderr or run.results["evaluations"][0]["message"]


def test_what_dropout_empties_behind_a_relu_is_judged_where_it_shows(tmp_path):
    problem, submission = tmp_path / "problem.py", tmp_path / "submission.py"
    text = PROBLEM.format(init="self.dropout = nn.Dropout(0.1)", forward="return self.dropout(x.relu())", inputs=PLAIN)
    problem.write_text(text + 'RANDOM = {0: "dropout"}\n')
    submission.write_text(text.replace("Model(", "ModelNew(").replace("self.dropout(x.relu())", (
        "torch.where(torch.rand_like(x) < 0.1, 0, x.relu() / 0.9) if self.training else x.relu()"
    )))  # fmt: skip
    run = run_eval(submission, "--problem", problem, "--no-timing")
    assert run.code == 0, run.stderr or run.results["evaluations"][0]["message"]
    submission.write_text(submission.read_text().replace("< 0.1", "< 0.5"))
    assert run_eval(submission, "--problem", problem, "--no-timing").code == 1


def test_a_random_output_with_something_behind_its_dropout_is_the_problems_fault(tmp_path):
    problem, submission = tmp_path / "problem.py", tmp_path / "submission.py"
    text = PROBLEM.format(init="self.dropout = nn.Dropout(0.1)", forward="return x + self.dropout(x)", inputs=PLAIN)
    problem.write_text(text + 'RANDOM = {0: "dropout"}\n')
    submission.write_text(text.replace("Model(", "ModelNew("))
    run = run_eval(submission, "--problem", problem, "--no-timing")
    assert run.code == 2 and "something comes behind 'dropout'" in run.stderr, run.stderr


@pytest.mark.parametrize(
    ("forward", "code", "said"),
    [
        ("torch.manual_seed(0); return x * 2", 2, "changes its caller's settings in case 'problem'"),
        ("torch.backends.cudnn.benchmark = True; return x * 2", 2, "left torch.backends.cudnn.benchmark at True"),
        ("return []", 2, "returned an empty list"),
        ("with torch.inference_mode(): return x * 2", 0, ""),
        ("with torch.enable_grad(): return torch.autograd.grad((x.requires_grad_() ** 3).sum(), x)[0]", 0, ""),
    ],
)
def test_what_a_reference_does_with_the_modes_of_a_program(forward, code, said, tmp_path):
    run = judged(tmp_path, "pass", forward, PLAIN)
    assert run.code == code and said in run.stderr, run.stderr


def test_a_mode_is_judged_whatever_the_layout_of_the_inputs(tmp_path):
    """Outputs of element-wise references lie as their inputs do, in evaluation as well."""
    problem, submission = tmp_path / "problem.py", tmp_path / "submission.py"
    text = "from torch import nn\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return x * 2\n"
    problem.write_text(text + "CASES = [dict(name='a', shapes=[(9, 40, 96)], layout='transposed')]\n")
    submission.write_text(text.replace("Model(", "ModelNew("))
    (evaluation,) = run_eval(submission, "--problem", problem, "--no-timing").results["evaluations"]
    assert evaluation["status"] == "accepted"
    assert "training_alone" not in [note["note"] for note in evaluation["noted"]]


def test_what_lies_apart_may_be_returned_and_differentiated(tmp_path):
    """A view of what lies apart is asked of nobody; gradients lie as `.grad` does, whatever autograd finds."""
    problem, submission = tmp_path / "problem.py", tmp_path / "submission.py"
    text = TRAINED.format(init="pass", forward="{forward}", gradients=True)
    cases = "CASES = [dict(name='a', shapes=[(4, 8, 16), (4, 8, 16)], layout='transposed')]\n"
    text = text[: text.index("def get_inputs")] + cases
    for forward, copied in (
        ("return a * 2, b.mT", "return a * 2, b.mT.clone()"),
        ("return torch.cat([a, b], -1).softmax(-1)", "return torch.cat([a, b], -1).softmax(-1)"),
    ):
        problem.write_text(text.replace("{forward}", forward))
        submission.write_text(text.replace("{forward}", copied).replace("Model(", "ModelNew("))
        run = run_eval(submission, "--problem", problem, "--no-timing")
        assert run.code == 0, run.stderr or run.results["evaluations"][0]["message"]


def test_a_reference_may_need_the_layout_of_its_case(tmp_path):
    """Nothing is asked of a submission on rows that lie further apart where the reference does not take them."""
    problem, submission = tmp_path / "problem.py", tmp_path / "submission.py"
    forward = "return x.mT.view(-1) * 2"
    text = f"from torch import nn\n\nclass Model(nn.Module):\n    def forward(self, x):\n        {forward}\n"
    problem.write_text(text + "CASES = [dict(name='a', shapes=[(9, 40, 96)], layout='transposed')]\n")
    submission.write_text(text.replace("Model(", "ModelNew("))
    run = run_eval(submission, "--problem", problem, "--no-timing")
    assert run.code == 0, run.stderr or run.results["evaluations"][0]["message"]


def test_a_constructor_may_be_given_a_dtype(tmp_path):
    text = PROBLEM.format(init="self.dtype = dtype", forward="return x.to(self.dtype)", inputs=PLAIN)
    text = text.replace("__init__(self)", "__init__(self, dtype)").replace("return []", "return [torch.bfloat16]")
    problem, submission = tmp_path / "problem.py", tmp_path / "submission.py"
    problem.write_text(text)
    submission.write_text(text.replace("Model(", "ModelNew("))
    run = run_eval(submission, "--problem", problem, "--no-timing")
    assert run.code == 0, run.stderr or run.results["evaluations"][0]["message"]
