"""Hypotheses on results with a planted fault, each named, and on others that none explains.

Most faults are planted in plain functions beside a problem's reference and judged in this process; a few submissions go
all the way through eval.py.
"""

import copy
import math
import re
import sys
import time
from dataclasses import replace
from typing import get_args
from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F

from harness import diagnosis, explanations
from harness.device.host import HostDevice
from harness.device.memory_file import MemoryFile
from harness.diagnosis import HYPOTHESES, Evidence
from harness.explanations import (
    Border,
    Cancelled,
    Constant,
    Displaced,
    Earlier,
    EpsOutsideRoot,
    FailingCases,
    KeptFromBefore,
    LeftOut,
    MaximaFromZero,
    MeanKept,
    MeanTakenOff,
    Misread,
    Multiple,
    Negated,
    NotDeterministic,
    Offset,
    OtherDimension,
    OtherEps,
    OtherGelu,
    OtherStep,
    PartOfRow,
    Places,
    Region,
    Returned,
    Rounded,
    SumLeftOut,
    Swapped,
    Unexplained,
    Unwritten,
    VarianceDivisor,
)
from harness.judging import diagnosed
from harness.oracle.data import Data
from harness.oracle.draw import Draws
from harness.paths import PROBLEMS
from harness.problem import Case, load_problem
from harness.report.explanations import OTHER_STEPS, cause
from tests.helpers import ROOT, run_eval

DEVICE = HostDevice("cpu", MemoryFile())
DRAWS = {}


def drawn_of(problem, case):
    if problem not in DRAWS:
        loaded = load_problem(PROBLEMS / f"{problem}.py", random_seed=0)
        DRAWS[problem] = loaded, Draws(loaded, DEVICE, seed=1)
    loaded, draws = DRAWS[problem]
    return draws.draw(next(c for c in loaded.cases if c.name == case))


def evidence_of(problem, case, wrong, **more):
    """What a function of the inputs and the reference's parameters gives in place of a case's results."""
    drawn = drawn_of(problem, case)
    parameters = [p.detach() for p in drawn.reference.model.parameters()]
    with torch.no_grad():
        got = wrong(*drawn.data.laid_out(drawn.reference.case), *parameters)
    got = list(got) if isinstance(got, tuple) else [got]
    got = [g.to(e.form.dtype) for g, e in zip(got, drawn.expected, strict=True)]
    return Evidence(drawn.reference, drawn.data, drawn.expected, got, **more)


def found(evidence):
    assert evidence.wrong, "the fault does not show in this case"
    return diagnosis.find(evidence, time.monotonic() + 60)


def moments(x, correction=0):
    return torch.var_mean(x.double(), -1, correction=correction, keepdim=True)


def norm(x, w, b, eps=1e-5):
    return F.layer_norm(x.double(), w.shape, w.double(), b.double(), eps)


def by(variance, mean, x, w, b, eps=1e-5):
    """LayerNorm by these statistics."""
    return (x.double() - mean) * torch.rsqrt(variance + eps) * w + b


def outside(x, w, b):
    variance, mean = moments(x)
    return (x - mean) / (variance.sqrt() + 0.1) * w + b


def with_tail_left_out(step, divided_by_all):
    def wrong(x, w, b):
        whole = x.shape[-1] // step * step
        part = x[..., :whole].double()
        count = x.shape[-1] if divided_by_all else whole
        mean = part.sum(-1, keepdim=True) / count
        return by((part - mean).square().sum(-1, keepdim=True) / count, mean, x, w, b)

    return wrong


def one_warp_by_all(x, w, b):
    first, part = x[..., :1].double(), x[..., torch.arange(x.shape[-1]) % 256 < 32].double()
    mean = first + (part - first).sum(-1, keepdim=True) / x.shape[-1]
    correction = (part - mean).sum(-1, keepdim=True) / x.shape[-1]
    variance = (part - mean).square().sum(-1, keepdim=True) / x.shape[-1] - correction.square()
    return by(variance, mean + correction, x, w, b)


def one_warp(x, w, b):
    mine = torch.arange(x.shape[-1]) % 256 < 32
    return by(*moments(x[..., mine]), x, w, b)


def in_one_pass(x, w, b):
    mean = x.mean(-1, keepdim=True)
    return by((x.square().mean(-1, keepdim=True) - mean.square()).clamp(min=0).double(), mean.double(), x, w, b)


def changed(part, value):
    """Right everywhere but in `part`, an index of the output."""

    def wrong(x, w, b):
        y = norm(x, w, b)
        y[part] = value if not callable(value) else value(y[part])
        return y

    return wrong


def flat_reading(x):
    return torch.as_strided(x, (x.numel(),), (1,)).reshape(x.shape)


def twice(y):
    return 2 * y + 1


def step_of(x, dy, w, b, *, dgamma_rows=None, keeps_second_sum=True):
    """Output and gradients of LayerNorm."""
    variance, mean = moments(x)
    r = torch.rsqrt(variance + 1e-5)
    n, g = (x - mean) * r, dy * w
    second = n * (g * n).mean(-1, keepdim=True) if keeps_second_sum else 0
    rows, rows_dy = (n * dy).reshape(-1, w.numel()), dy.reshape(-1, w.numel())
    return n * w + b, r * (g - g.mean(-1, keepdim=True) - second), rows[:dgamma_rows].sum(0), rows_dy.sum(0)


PLANTED = {
    "bias left out": ("layernorm", "2x33", lambda x, w, b: norm(x, w, 0 * b), LeftOut(what="'ln.bias'")),
    "weight left out": ("layernorm", "2x33", lambda x, w, b: norm(x, 0 * w + 1, b), LeftOut(what="'ln.weight'")),
    "both left out": (
        "layernorm", "2x33", lambda x, w, b: norm(x, 0 * w + 1, 0 * b), LeftOut(what="'ln.weight' and 'ln.bias'"),
    ),
    "swapped": ("layernorm", "4x128", lambda x, w, b: norm(x, b, w), Swapped(one="'ln.weight'", other="'ln.bias'")),
    "bias taken off": ("layernorm", "4x128", lambda x, w, b: norm(x, w, -b), Negated(what="'ln.bias'")),
    "unbiased variance": (
        "layernorm", "D = 769", lambda x, w, b: by(*moments(x, 1), x, w, b),
        VarianceDivisor(divisor="D - 1", expected="D"),
    ),
    "eps outside of the root": ("layernorm", "eps = 0.1", outside, EpsOutsideRoot()),
    "eps left out": (
        "layernorm", "eps = 0.1", lambda x, w, b: norm(x, w, b, 0.0), OtherEps(used=None, expected=0.1),
    ),
    "eps of 1e-3": ("layernorm", "eps = 0.1", lambda x, w, b: norm(x, w, b, 1e-3), OtherEps(used=1e-3, expected=0.1)),
    "mean not taken off": (
        "layernorm", "4x128", lambda x, w, b: by(x.double().square().mean(-1, keepdim=True), 0, x, w, b), MeanKept(),
    ),
    "a mean where there is none": (
        "rmsnorm", "2x33",
        lambda x, w: (x - x.mean(-1, keepdim=True)) / x.var(-1, correction=0, keepdim=True).sqrt() * w,
        MeanTakenOff(),
    ),
    "a tail left out of the sums": (
        "layernorm", "D = 769", with_tail_left_out(256, False),
        PartOfRow(start=0, used=768, of=769, divided_by=768),
    ),
    "a tail left out, divided by D": (
        "layernorm", "D = 1023", with_tail_left_out(32, True),
        PartOfRow(start=0, used=992, of=1023, divided_by=1023),
    ),
    "sums of one warp": (
        "layernorm", "D = 2052", one_warp, PartOfRow(start=0, used=260, of=2052, divided_by=260, lanes=256),
    ),
    "sums of one warp, divided by all": (
        "layernorm", "D = 2052", one_warp_by_all, PartOfRow(start=0, used=260, of=2052, divided_by=2052, lanes=256),
    ),
    "read as contiguous": (
        "layernorm", "not contiguous", lambda x, w, b: norm(flat_reading(x), w, b),
        Misread(what="input 'x'", how="contiguous"),
    ),
    "written transposed": (
        "layernorm", "4x128", lambda x, w, b: norm(x, w, b).mT.contiguous().reshape(x.shape),
        Misread(what="the output", how="transposed"),
    ),
    "one element too late": (
        "layernorm", "4x128", lambda x, w, b: norm(x, w, b).flatten().roll(1).reshape(x.shape), Displaced(by=1),
    ),
    "nothing computed": ("layernorm", "4x128", lambda x, w, b: torch.zeros_like(x), Constant(value=0.0)),
    "nothing written": ("layernorm", "4x128", lambda x, w, b: torch.full_like(x, math.nan), Unwritten()),
    "the input": ("layernorm", "4x128", lambda x, w, b: x.clone(), Returned(what="input 'x'")),
    "the last rows never written": (
        "layernorm", "16x1024", changed(slice(12, None), math.nan),
        Region(content="nan", split=1, rows=Places(start=12, stop=16, count=16)),
    ),
    "a tail of D mod 32": (
        "layernorm", "D = 1028", changed((slice(None), slice(1024, None)), 0.0),
        Region(content="zero", split=1, columns=Places(start=1024, stop=1028, count=1028)),
    ),
    "one lane of four": (
        "layernorm", "16x1024", changed((slice(None), slice(3, None, 4)), twice),
        Region(content="wrong", split=1, columns=Places(start=3, stop=4, count=1024, period=4)),
    ),
    "the tail of the last rows": (
        "layernorm", "16x1024", changed((slice(8, None), slice(512, None)), twice),
        Region(content="wrong", split=1, rows=Places(start=8, stop=16, count=16),
               columns=Places(start=512, stop=1024, count=1024)),
    ),
    "some channels": (
        "layernorm", "two trailing dims", changed((slice(None), slice(2, None)), twice),
        Region(content="wrong", split=1, columns=Places(start=2, stop=5, count=5), dimension=1),
    ),
    "inputs in bfloat16": (
        "layernorm", "4x128", lambda x, w, b: norm(x.bfloat16(), w, b), Rounded(what="inputs", dtype="bfloat16"),
    ),
    "output by half": (
        "layernorm", "4x128", lambda x, w, b: norm(x, w, b).half(), Rounded(what="output", dtype="float16"),
    ),
    "residual left out": (
        "add_layernorm", "1x7", lambda x, r, w, b: (norm(x, w, b), x), LeftOut(what="input 'residual'"),
    ),
    "residual taken off": (
        "add_layernorm", "1x7", lambda x, r, w, b: (norm(x - r, w, b), x - r), Negated(what="input 'residual'"),
    ),
    "the other GELU": (
        "bias_gelu", "1x7, tanh", lambda x, b: F.gelu((x + b).double()), OtherGelu(used="exact", expected="tanh"),
    ),
    "GELU left out": ("bias_gelu", "1x7, none", lambda x, b: x + b, LeftOut(what="gelu")),
    "gradients in each other's place": (
        "layernorm_train", "1x7", lambda *given: (lambda y, dx, dw, db: (y, dx, db, dw))(*step_of(*given)),
        Swapped(one="the gradient of 'ln.weight'", other="the gradient of 'ln.bias'"),
    ),
    "a sum left out of the gradient": (
        "layernorm_train", "1x7", lambda *given: step_of(*given, keeps_second_sum=False),
        SumLeftOut(terms=7, number=2, count=4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_named(fault):
    problem, case, wrong, explanation = PLANTED[fault]
    assert found(evidence_of(problem, case, wrong)) == explanation


def test_a_constant_multiple_is_named_with_its_factor():
    def scaled(x, w):
        return 1.25 * F.rms_norm(x.double(), w.shape, w.double(), 1e-6)

    explanation = found(evidence_of("rmsnorm", "D = 769", scaled))
    assert isinstance(explanation, Multiple) and explanation.factor == pytest.approx(1.25) and not explanation.before
    before = found(evidence_of("layernorm", "4x128", lambda x, w, b: norm(x, 1.25 * w, b)))
    assert isinstance(before, Multiple) and before.factor == pytest.approx(1.25) and before.before == "ln.bias"


def test_a_constant_amount_is_named():
    explanation = found(evidence_of("layernorm", "4x128", lambda x, w, b: norm(x, w, b) + 0.25))
    assert isinstance(explanation, Offset) and explanation.amount == pytest.approx(0.25)


@pytest.mark.parametrize("case", ["N(1e4, 1)", "N(1000, 0.1)"])
def test_a_variance_that_cancels_is_named(case):
    explanation = found(evidence_of("layernorm", case, in_one_pass))
    assert isinstance(explanation, Cancelled)
    assert explanation.mean_over_deviation > 5_000


def test_sums_in_16_bits_are_named_where_32_bits_are_right():
    def in_half(x, w, b):
        return F.layer_norm(x.double(), w.shape, w.double(), b.double()) * (1 + 4 * torch.finfo(x.dtype).eps)

    wrong = evidence_of("layernorm_dtypes", "fp16, odd", in_half, right_in_wider=True)
    loose = [h for h in HYPOTHESES if h.__name__ == "steps_rounded"]
    assert diagnosis.find(wrong, math.inf, loose) == Rounded(what="steps", dtype="float16")
    wrong = evidence_of("layernorm_dtypes", "fp16, odd", in_half)
    assert diagnosis.find(wrong, math.inf, loose) == Unexplained()


def test_an_earlier_call_is_named():
    drawn = drawn_of("layernorm", "4x128")
    other = drawn.further.inputs
    result, stale = [e.values.float() for e in drawn.expected], copy.deepcopy(drawn.reference.model)
    kept = Evidence(drawn.reference, other.data, other.expected, result, earlier=[result])
    assert found(kept) == Earlier(what="result")
    old_data = Evidence(drawn.reference, other.data, other.expected, result, earlier_data=drawn.data)
    assert found(old_data) == Earlier(what="inputs")
    for parameter in stale.parameters():
        parameter.data = parameter.data + 1
    old = [stale(*drawn.data.inputs).detach()]
    assert found(Evidence(drawn.reference, drawn.data, drawn.expected, old, earlier_model=stale)) == Earlier(
        what="weights"
    )


def test_one_parameter_of_an_earlier_call_is_named():
    drawn = drawn_of("layernorm", "4x128")
    before = copy.deepcopy(drawn.reference.model)
    before.ln.weight.data += 1
    before.ln.bias.data += 1
    mixed = copy.deepcopy(drawn.reference.model)
    mixed.ln.weight.data += 1
    got = [mixed(*drawn.data.inputs).detach()]
    evidence = Evidence(drawn.reference, drawn.data, drawn.expected, got, earlier_model=before)
    assert found(evidence) == Earlier(what="'ln.weight'")


def test_what_a_new_model_has_right_is_kept_from_before_and_not_chance():
    right = [e.values.float() for e in drawn_of("layernorm", "4x128").expected]
    first = [torch.ones_like(r) for r in right]
    wrong = evidence_of("layernorm", "4x128", lambda x, w, b: norm(x, w * w, b), earlier=[first])
    assert found(replace(wrong, same_data=[right, right])) == KeptFromBefore()
    noise = [[r * (1 + torch.rand(r.shape))] for r in right * 2]
    assert isinstance(found(replace(wrong, same_data=noise)), NotDeterministic)
    assert found(replace(wrong, same_data=[noise[0], noise[0]])) == Unexplained()


def test_results_that_differ_from_call_to_call_are_named():
    def at_random(x, w, b):
        return norm(x, w, b) * (1 + torch.rand(x.shape))

    other = evidence_of("layernorm", "4x128", at_random)
    wrong = evidence_of("layernorm", "4x128", at_random, same_data=[other.got])
    explanation = found(wrong)
    assert isinstance(explanation, NotDeterministic)
    assert explanation.of == 512 and explanation.differing > 500


# ---------------------------------------------------------------------- what nothing explains

GENERATOR = torch.Generator().manual_seed(3)

HONEST = {
    "the median for the mean": (
        "layernorm", "4x128", lambda x, w, b: by(moments(x)[0], x.median(-1, True)[0], x, w, b),
    ),
    "deviation by absolute values": (
        "layernorm", "4x128",
        lambda x, w, b: (x - x.mean(-1, True)) / (x - x.mean(-1, True)).abs().mean(-1, True) * w + b,
    ),
    "a square too few": (
        "rmsnorm", "2x33", lambda x, w: x * torch.rsqrt(x.abs().mean(-1, keepdim=True) + 1e-6) * w,
    ),
    "wrong here and there": (
        "layernorm", "16x1024",
        lambda x, w, b: norm(x, w, b) + (torch.rand(x.shape, generator=GENERATOR) < 0.02) * 0.1,
    ),
    "noise": (
        "layernorm", "16x1024", lambda x, w, b: norm(x, w, b) + 1e-3 * torch.randn(x.shape, generator=GENERATOR),
    ),
    "another function": ("bias_gelu", "1x7, none", lambda x, b: torch.sigmoid(x + b) * (x + b)),
    "weight squared": ("layernorm", "4x128", lambda x, w, b: norm(x, w * w, b)),
    "some rows, wherever": ("layernorm", "16x1024", changed([1, 6, 7, 12], twice)),
    "a gradient by another formula": (
        "layernorm_train", "1x7", lambda x, dy, w, b: (step_of(x, dy, w, b)[0], dy * w * x, *step_of(x, dy, w, b)[2:]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", HONEST)
def test_another_fault_is_not_given_a_name(fault):
    problem, case, wrong = HONEST[fault]
    assert found(evidence_of(problem, case, wrong)) == Unexplained()


def test_whole_numbers_are_compared_by_place_alone():
    drawn = drawn_of("layernorm", "4x128")
    values = torch.arange(32.0, dtype=torch.float64).reshape(4, 8)
    (expected,) = drawn.expected
    form = type(expected.form)((4, 8), (8, 1), torch.int64)
    got = values.long()
    got[:, 6:] = 0
    evidence = Evidence(drawn.reference, drawn.data, [type(expected)(values, form, 0.0)], [got])
    assert found(evidence) == Region(content="zero", split=1, columns=Places(start=6, stop=8, count=8))


# ---------------------------------------------------------------------- limits


def test_after_the_limit_nothing_runs_the_reference(monkeypatch):
    wrong = evidence_of("layernorm", "16x1024", changed(slice(12, None), math.nan))
    monkeypatch.setattr(Evidence, "outputs", lambda *_, **__: pytest.fail("the reference runs"))
    assert isinstance(diagnosis.find(wrong, time.monotonic() - 1), Region)


def test_a_hypothesis_that_stumbles_explains_nothing_and_stops_nothing(monkeypatch):
    wrong = evidence_of("layernorm", "16x1024", changed(slice(12, None), math.nan))
    monkeypatch.setattr(Evidence, "outputs", lambda *_, **__: {}["a mistake"])
    with pytest.raises(KeyError):
        diagnosis.find(wrong, math.inf)
    assert isinstance(diagnosis.explain(wrong, math.inf), Region)


@pytest.mark.parametrize("row", [0, 3])
def test_a_row_that_is_very_wrong_does_not_make_the_others_look_displaced(row):
    wrong = evidence_of("layernorm", "4x128", lambda x, w, b: norm(x, w, b) + 0.1)
    wrong.got[0][row] = 1e9 * torch.randn(128)
    assert isinstance(diagnosis.find(wrong, math.inf), Unexplained)


def test_where_the_tolerance_is_as_large_as_the_fault_nothing_fits():
    few = evidence_of("layernorm", "4x128", changed(slice(0, 1), 1e3))
    coarse = replace(few, expected=[replace(e, tolerance=100.0) for e in few.expected])
    assert isinstance(diagnosis.find(coarse, math.inf), Region)


@pytest.mark.parametrize("problem", sorted(path.stem for path in PROBLEMS.glob("*.py")))
def test_no_hypothesis_stumbles_over_a_problem(problem):
    """Every one looks at noise, NaN and nothing in each kind of case."""
    loaded = load_problem(PROBLEMS / f"{problem}.py", random_seed=0)
    draws = Draws(loaded, DEVICE, seed=1)
    small = [case for case in loaded.cases if 0 < sum(map(math.prod, case.on("cpu").shapes)) < 2_000][:5]
    for case in small:
        drawn = draws.draw(case)
        for spoilt in (torch.randn_like, lambda t: torch.full_like(t, math.nan), lambda t: t + 1):
            got = [spoilt(e.values).to(e.form.dtype) for e in drawn.expected]
            evidence = Evidence(drawn.reference, drawn.data, drawn.expected, got, [got], [got], None, Data([]))
            for hypothesis in HYPOTHESES:
                if evidence.wrong:
                    list(hypothesis(evidence))


def test_the_first_wrong_call_is_kept_and_one_more_that_tells_more(monkeypatch):
    large, small, tiny = (evidence_of("layernorm", case, changed(0, 1.0)) for case in ("16x1024", "4x128", "2x33"))
    monkeypatch.setattr(diagnosed, "FEW_ELEMENTS", large.elements - 1)
    asked = []
    monkeypatch.setattr(diagnosed.diagnosis, "explain", lambda evidence, *_: asked.append(evidence) or Unexplained())
    witness = diagnosed.Witness()
    for evidence in (large, large, tiny, small, small):
        witness.of("a case")(evidence)
    witness.explained(Mock(worker=Mock(has_ended=True)), [])
    assert [evidence.elements for evidence in asked[::2]] == [small.elements, large.elements]


# ---------------------------------------------------------------------- words


def test_every_explanation_has_words_and_every_hypothesis_a_line():
    values = [explanation for *_, explanation in PLANTED.values()]
    values += [Cancelled(mean_over_deviation=1e4), Earlier(what="result"), Earlier(what="weights"), Unexplained()]
    values += [Multiple(factor=2.0), Multiple(factor=2.0, before="b"), Offset(amount=0.5)]
    values += [NotDeterministic(differing=3, of=9), Rounded(what="steps", dtype="float16")]
    values += [Earlier(what="'ln.weight'"), KeptFromBefore(), MaximaFromZero(), Rounded(what="sums", dtype="float16")]
    values += [OtherDimension(used=[0], expected=[1, 2], of=3), *(OtherStep(used=used) for used in OTHER_STEPS)]
    values += [Misread(what="input 'i'", how="int32"), Border(width=1, dimensions=1), Border(width=2, dimensions=2)]
    words = {cause(value) for value in values}
    assert {type(value) for value in values} == set(get_args(explanations.Explanation))
    assert all(text.endswith(".") and len(text) < 220 for text in words)
    assert all(hypothesis.__doc__.count("\n") == 0 for hypothesis in HYPOTHESES)


# ---------------------------------------------------------------------- through eval.py

SUBMISSION = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        y = (x - mean).contiguous()
        FORWARD
"""
RIGHT = "y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight"

# eval.py with time for all hypotheses, also on a busy machine.
PATIENT = [
    sys.executable,
    "-c",
    "from harness import diagnosis; diagnosis.LIMIT_S = 60.0; "
    "from harness.cli import main; import sys; sys.exit(main(sys.argv[1:]))",
]

# Of each submission, what it does, and words of its report.
THROUGH = {
    "without_bias": (f"return {RIGHT}", "'ln.bias' is left out."),
    "unwritten": (
        f"z = torch.empty_like(y); z[:6] = ({RIGHT} + self.bias)[:6]; return z",
        "only the last 2 of 8 rows are NaN, as where nothing was written; all else is right.",
    ),
    "at_random": (
        f"return {RIGHT} * (1 + torch.rand(x.shape)) + self.bias", "not deterministic: another call on the same data",
    ),
    "kept": (
        f"self.kept = self.kept if hasattr(self, 'kept') else {RIGHT} + self.bias; return self.kept.clone()",
        "this is an earlier call's result.",
    ),
    "dies_in_the_call_after_the_verdict": (
        f"ModelNew.calls = getattr(ModelNew, 'calls', 0) + 1; ModelNew.calls > 2 and __import__('os')._exit(1); "
        f"return {RIGHT} * self.weight",
        "none of the usual faults gives this result.",
    ),
    "weight_kept": (
        "self.kept = self.kept if hasattr(self, 'kept') else self.weight.detach().clone(); "
        f"return {RIGHT.replace('self.weight', 'self.kept')} + self.bias",
        "this is what 'ln.weight' of an earlier call gives, with all else as it is now.",
    ),
    "counts_its_calls": (
        f"self.n = getattr(self, 'n', 0) + 1; return {RIGHT} + self.bias + (self.n > 2) * y.exp()",
        "a new model is right on the same data: something is kept from the calls before",
    ),
    "right": (f"return {RIGHT} + self.bias", ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    folder = tmp_path_factory.mktemp("why")
    for name, (forward, _) in THROUGH.items():
        (folder / f"{name}.py").write_text(SUBMISSION.replace("FORWARD", forward))
    problem = ROOT / "tests/fixtures/problems/small_layernorm.py"
    run = run_eval(folder, "--problem", problem, "--report", f"terminal={folder / 'report.txt'}", program=PATIENT)
    return {e["submission"]: e for e in run.results["evaluations"]}, (folder / "report.txt").read_text()


@pytest.mark.parametrize("name", THROUGH)
def test_the_report_says_why(told, name):
    evaluations, report = told
    verdict = next(
        line for line in report.split("isolation")[0].splitlines() if re.search(rf"ED  (\S+ · )?{name}  ", line)
    )
    after = report[report.index(verdict) :].splitlines()[1:4]
    words = THROUGH[name][1]
    if not words:
        assert evaluations[name]["status"] == "accepted" and not after[0].startswith("  why: ")
        return
    assert evaluations[name]["status"] == "rejected"
    assert after[0].startswith("  why: ") and words in after[0]
    assert after[1].startswith(("  cases: ", "  all cases fail so"))


def test_json_has_the_explanation_of_one_case(told):
    evaluations, _ = told
    explained = [case.get("explanation") for case in evaluations["without_bias"]["cases"]]
    assert [e for e in explained if e] == [{"cause": "left_out", "what": "'ln.bias'"}]
    assert evaluations["without_bias"]["failing"]["judged"] == 2


KERNEL = (ROOT / "submissions/layernorm/rung1_block_per_row.py").read_text()

# Of a kernel, what stands in place of what, and words of its report.
KERNELS = {
    "divides_by_n_minus_1": (
        "block_sum(squares) / width -", "block_sum(squares) / (width - 1) -",
        "the variance is divided by D - 1 and not by D.",
    ),
    "vectors_of_four_only": (
        "i < width; i += kThreads) {\n        y[i]", "i < width / 4 * 4; i += kThreads) {\n        y[i]",
        "only the last of 321 columns (321 modulo 4 and 32) is NaN, as where nothing was written; all else is right.",
    ),
    "one_warp_only": (
        "i < kThreads; i++) total", "i < 32; i++) total",
        "sums are over the first 32 of every 256, of 321 elements, and divided by 321.",
    ),
}  # fmt: skip


def test_faults_of_kernels_are_named_on_the_emulator(tmp_path):
    for name, (right, wrong, _) in KERNELS.items():
        assert KERNEL.count(right) == 1
        (tmp_path / f"{name}.py").write_text(KERNEL.replace(right, wrong))
    problem = ROOT / "tests/fixtures/problems/small_layernorm.py"
    run = run_eval(
        tmp_path, "--problem", problem, "-k", "large eps", "--device", "emulator", json_results=False, program=PATIENT
    )
    said = [line.removeprefix("  why: ") for line in run.stdout.splitlines() if line.startswith("  why: ")]
    assert said == [KERNELS[name][2] for name in sorted(KERNELS)], run.stdout


# ---------------------------------------------------------------------- which cases fail


def cases(*widths, **more):
    return [Case(str(width), shapes=((4, width),), **more) for width in widths]


@pytest.mark.parametrize(
    ("failed", "passed", "rule"),
    [
        (cases(512, 1024), cases(64, 256), ("D", ">", "256")),
        (cases(7, 33), cases(64, 256), ("D", "not a multiple of", "2")),
        (cases(12, 44), cases(64, 8, 32), ("D", "not a multiple of", "8")),
        (cases(64, 256, dtype=torch.float16), cases(64, 256), ("dtype", "=", "float16")),
        (cases(64, layout="transposed"), cases(64, 256), ("layout", "=", "transposed")),
        (
            cases(64, 256, distribution="narrow") + cases(64, distribution="large_mean"),
            cases(64, 256),
            ("distribution", "=", "large_mean or narrow"),
        ),
        (cases(64, distribution="large_mean"), cases(64), ("", "", "")),
        (cases(64, 512), cases(128, 256), ("", "", "")),
        (cases(512), cases(64, 256), ("", "", "")),
    ],
)
def test_the_rule_that_tells_failing_cases_from_others(failed, passed, rule):
    told = diagnosis.failing_cases(failed, passed)
    assert (told.feature, told.relation, told.value) == rule
    assert (told.failed, told.judged) == (len(failed), len(failed) + len(passed))


def test_no_rule_where_nothing_failed_and_shapes_where_all_did():
    assert diagnosis.failing_cases([], cases(1)) is None
    told = diagnosis.failing_cases(cases(64, 64, 128), [])
    assert told == FailingCases(failed=3, judged=3, shapes=["4×64", "4×128"])
