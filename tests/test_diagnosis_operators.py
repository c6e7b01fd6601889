"""Faults of operators beside those of the problems, each named, planted in plain functions beside a reference."""

import math
import re
import time

import pytest
import torch
import torch.nn.functional as F

from harness import diagnosis
from harness.device.host import HostDevice
from harness.device.memory_file import MemoryFile
from harness.diagnosis import Evidence
from harness.explanations import (
    Border,
    LeftOut,
    MaximaFromZero,
    Misread,
    OtherDimension,
    OtherStep,
    Rounded,
    Unexplained,
)
from harness.oracle.draw import Draws
from harness.problem import load_problem
from harness.report.explanations import cause
from tests.helpers import FORMULA

DEVICE = HostDevice("cpu", MemoryFile())


def explained(path, wrong):
    """What is found where `wrong`, a function of the reference's model and the inputs, stands in for the reference of
    the problem at `path`."""
    problem = load_problem(path, random_seed=0)
    drawn = Draws(problem, DEVICE, seed=1).draw(problem.cases[0])
    with torch.no_grad():
        got = [wrong(drawn.reference.model, *drawn.data.given)]
    evidence = Evidence(drawn.reference, drawn.data, drawn.expected, got)
    assert evidence.wrong, "the fault does not show in this case"
    return diagnosis.find(evidence, time.monotonic() + 60)


def as_int32(i):
    return i.flatten().view(torch.int32)[: i.numel()].reshape(i.shape).long()


def in_order(a, b, dtype):
    """A product whose sums are kept in a dtype."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=dtype)
    for k in range(a.shape[1]):
        total += torch.outer(a[:, k], b[k]).to(dtype)
    return total.float()


def cumsum_in_order(x, dtype):
    total, sums = torch.zeros(x.shape[0], dtype=dtype), []
    for column in x.to(dtype).unbind(1):
        total = total + column
        sums.append(total.float())
    return torch.stack(sums, 1)


NORMAL, SQUARE = "torch.randn(6, 40)", "torch.rand(24, 24), torch.rand(24, 24)"
INDICES = "torch.randn(9, 30), torch.randint(0, 30, (9,))"
CUBE, HEADS = "torch.randn(4, 5, 8)", "torch.randn(2, 3, 12, 8)"
CAUSAL = "F.scaled_dot_product_attention(x, x, x, is_causal=True)"
FROM_ZERO = MaximaFromZero()
READ_AS_INT32 = Misread(what="input 'i'", how="int32")


def attention(x, *, causal, diagonal=0, scale=8**-0.5):
    scores = x @ x.mT * scale
    keep = torch.ones(12, 12, dtype=torch.bool).tril(diagonal)
    return scores.masked_fill(~keep & causal, -math.inf).softmax(-1) @ x


# Of each, the formula, its data, and what came out.
OPERATORS = {
    "a maximum from 0": ("x.amax(1)", "torch.randn(9, 2)", lambda x: x.clamp(min=0).amax(1), FROM_ZERO),
    "a maximum from 0 of negative data": ("x.amax(1)", "-torch.rand(9, 30)", lambda x: 0 * x[:, 0], FROM_ZERO),
    "where a maximum from 0 is": ("x.argmax(1)", "torch.randn(90, 2)", lambda x: x.clamp(min=0).argmax(1), FROM_ZERO),
    "a pooling from 0": (
        "F.max_pool1d(x, 2)", NORMAL, lambda x: F.max_pool1d(x.clamp(min=0), 2), FROM_ZERO,
    ),
    "targets read as int32": (
        "F.cross_entropy(x, i)", INDICES, lambda x, i: F.cross_entropy(x, as_int32(i)), READ_AS_INT32,
    ),
    "whole numbers read as int32": (
        "torch.bincount(i, minlength=9)", "torch.randint(0, 9, (200,))",
        lambda i: torch.bincount(as_int32(i), minlength=9), READ_AS_INT32,
    ),
    "both operands transposed": (
        "x @ i", SQUARE, lambda x, i: x.T @ i.T, Misread(what="input 'x' and of input 'i'", how="transposed"),
    ),
    "a product in fp16": (
        "x @ i", SQUARE, lambda x, i: in_order(x, i, torch.float16), Rounded(what="sums", dtype="float16"),
    ),
    "a product in bf16": (
        "x @ i", SQUARE, lambda x, i: in_order(x, i, torch.bfloat16), Rounded(what="sums", dtype="bfloat16"),
    ),
    "a running sum in fp16": (
        "x.cumsum(1)", NORMAL, lambda x: cumsum_in_order(x, torch.float16), Rounded(what="sums", dtype="float16"),
    ),
    "padding of a row": (
        "F.avg_pool1d(x, 5, 1, 2)", NORMAL, lambda x: F.avg_pool1d(x.roll(1, 0), 5, 1, 2).where(
            (torch.arange(40) < 2) | (torch.arange(40) > 37), F.avg_pool1d(x, 5, 1, 2)
        ), Border(width=2, dimensions=1),
    ),
    "padding of an image": (
        "F.avg_pool2d(x, 3, 1, 1)", "torch.rand(2, 3, 15, 17)",
        lambda x: F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, 1), Border(width=1, dimensions=2),
    ),
    "softmax over the other dimension": (
        "F.softmax(x, -1)", NORMAL, lambda x: F.softmax(x, 0), OtherDimension(used=[0], expected=[1], of=2),
    ),
    "sums over the other dimension": (
        "x.sum(1)", "torch.randn(6, 6, 40)", lambda x: x.sum(0), OtherDimension(used=[0], expected=[1], of=3),
    ),
    "a norm over too few dimensions": (
        "F.layer_norm(x, (5, 8))", CUBE, lambda x: F.layer_norm(x, (8,)),
        OtherDimension(used=[2], expected=[1, 2], of=3),
    ),
    "a norm over all dimensions": (
        "F.layer_norm(x, (8,))", CUBE, lambda x: F.layer_norm(x, (4, 5, 8)),
        OtherDimension(used=[0, 1, 2], expected=[2], of=3),
    ),
    "a running sum along the other dimension": (
        "x.cumsum(1)", NORMAL, lambda x: x.cumsum(0), OtherDimension(used=[0], expected=[1], of=2),
    ),
    "a loss that is not divided": (
        "F.cross_entropy(x, i)", INDICES, lambda x, i: F.cross_entropy(x, i, reduction="sum"), OtherStep(used="sum"),
    ),
    "a mean of one number that is not divided": (
        "x.square().mean()", NORMAL, lambda x: x.square().sum(), OtherStep(used="sum"),
    ),
    "the smallest": ("x.amax(1)", NORMAL, lambda x: x.amin(1), OtherStep(used="smallest")),
    "where the largest is": ("x.argmin(1)", NORMAL, lambda x: x.argmax(1), OtherStep(used="largest")),
    "the lowest for the topmost": (
        "x.topk(5).values", NORMAL, lambda x: x.topk(5, largest=False).values, OtherStep(used="other_end"),
    ),
    "the topmost in the opposite order": (
        "x.topk(5).values", NORMAL, lambda x: x.topk(5).values.flip(1), OtherStep(used="backwards"),
    ),
    "a mask the other way round": (
        "x.masked_fill(x.abs() > 1, 2.0)", NORMAL, lambda x: x.masked_fill(x.abs() <= 1, 2.0),
        OtherStep(used="mask_inverted"),
    ),
    "attention without its mask": (
        CAUSAL, HEADS, lambda x: attention(x, causal=False), LeftOut(what="a mask (tril, triu, a causal one)"),
    ),
    "attention whose mask is off by one": (
        CAUSAL, HEADS, lambda x: attention(x, causal=True, diagonal=1), OtherStep(used="diagonal_above"),
    ),
    "attention without its scale": (
        CAUSAL, HEADS, lambda x: attention(x, causal=True, scale=1.0), LeftOut(what="a constant factor"),
    ),
    "a running sum without the element": (
        "x.cumsum(1)", NORMAL, lambda x: x.cumsum(1) - x, OtherStep(used="exclusive"),
    ),
    "a running sum from the end": (
        "x.cumsum(1)", NORMAL, lambda x: x.flip(1).cumsum(1).flip(1), OtherStep(used="from_the_end"),
    ),
    "value and gate of a GLU exchanged": (
        "F.glu(x)", NORMAL, lambda x: x[:, 20:] * x[:, :20].sigmoid(), OtherStep(used="halves_swapped"),
    ),
    "value and gate of a SwiGLU exchanged": (
        "(lambda a, b: F.silu(a) * b)(*x.chunk(2, -1))", NORMAL, lambda x: x[:, :20] * F.silu(x[:, 20:]),
        OtherStep(used="halves_swapped"),
    ),
    "value and gate exchanged that are slices": (
        "F.silu(x[:, :20]) * x[:, 20:]", NORMAL, lambda x: x[:, :20] * F.silu(x[:, 20:]),
        OtherStep(used="halves_swapped"),
    ),
    "a convolution whose kernel is flipped": (
        "F.conv1d(x, i)", "torch.randn(2, 3, 20), torch.randn(4, 3, 5)", lambda x, i: F.conv1d(x, i.flip(2)),
        OtherStep(used="kernel_flipped"),
    ),
    "logsumexp without its logarithm": (
        "x.logsumexp(1)", NORMAL, lambda x: x.exp().sum(1), LeftOut(what="log"),
    ),
    "a norm without its root": (
        "x.square().sum(1).sqrt()", NORMAL, lambda x: x.square().sum(1), LeftOut(what="sqrt"),
    ),
    "limits left out": ("x.clamp(-1, 1) + x.square()", NORMAL, lambda x: x + x.square(), LeftOut(what="clamp")),
    "half of the whole numbers": ("x.round()", NORMAL, lambda x: x.round() - (x > 0).float(), Unexplained()),
}  # fmt: skip


@pytest.mark.parametrize("fault", OPERATORS)
def test_a_fault_of_another_operator_is_named(fault, tmp_path):
    formula, data, wrong, explanation = OPERATORS[fault]
    path = tmp_path / "operator.py"
    arguments = ", ".join(name for name in "xi" if re.search(rf"\b{name}\b", formula))
    path.write_text(FORMULA.format(arguments=arguments, formula=formula, data=data))
    assert explained(path, lambda _, *given: wrong(*given)) == explanation


GRU = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(6, 8)

    def forward(self, x, h):
        return self.cell(x, h)

def get_inputs():
    return [torch.randn(5, 6), torch.randn(5, 8)]

def get_init_inputs():
    return []
"""


def with_gates_exchanged(model, x, h):
    parameters = (p.chunk(3) for p in model.parameters())
    return torch.gru_cell(x, h, *(torch.cat([z, r, n]) for r, z, n in parameters))


def test_gates_that_are_exchanged_are_named(tmp_path):
    path = tmp_path / "gru.py"
    path.write_text(GRU)
    explanation = explained(path, with_gates_exchanged)
    assert cause(explanation).startswith("part 1 of 3 and part 2 of 'cell.weight_ih'")
