"""Lazy answers: what a submission might return that does less than the reference, to see which a problem would accept.

An answer is a function of a Question that gives tensors, as a submission's outputs (and gradients) would be, None where
there is nothing for it to leave out, and raises Unfit where it has no such form.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from harness.errors import KernelgateError
from harness.oracle.comparison import compare_all
from harness.oracle.copies import copied
from harness.oracle.draw import Drawn
from harness.oracle.maxima import ExponentialsAsTheyAre, MaximaFromZero
from harness.oracle.outputs import UNSEEN_SHARE, Expected, exact_outputs

# Elements of a mantissa that TF32 leaves out of float32's (NVIDIA A100 architecture whitepaper).
TF32_DROPPED_BITS = 13


# Inputs so many times as large show what an exponential might be of.
STRETCHED = 1e4


class Unfit(KernelgateError):
    """An answer cannot be given in the form of this case."""


@dataclass(frozen=True)
class Question:
    """A case, and `earlier`, what was right for the first case of its problem."""

    drawn: Drawn
    earlier: Sequence[Expected]

    @property
    def values(self) -> list[torch.Tensor]:
        return [expected.values for expected in self.drawn.expected]


Answer = Callable[[Question], list[torch.Tensor] | None]


def passes(answer: Answer, question: Question) -> bool | None:
    """Whether a case would take this answer, rounded to the outputs' dtype; None where it leaves nothing out."""
    try:
        given = answer(question)
    except Unfit:
        return False
    if given is None:
        return None
    expected = question.drawn.expected
    rounded = [tensor.to(wanted.form.dtype) for tensor, wanted in zip(given, expected, strict=True)]
    return all(comparison.ok for comparison in compare_all(rounded, expected))


def is_empty(drawn: Drawn) -> bool:
    """Whether there is nothing to be compared."""
    return not any(expected.values.numel() for expected in drawn.expected)


def zeros(question: Question) -> list[torch.Tensor]:
    return [torch.zeros_like(values) for values in question.values]


def ones(question: Question) -> list[torch.Tensor]:
    return [torch.ones_like(values) for values in question.values]


def one_mean(question: Question) -> list[torch.Tensor]:
    """The mean of all elements, everywhere."""
    return [torch.full_like(values, float(values.nanmean())) for values in question.values]


def mean_over_batch(question: Question) -> list[torch.Tensor]:
    """The mean over the first dimension, in each of its rows."""
    return [_rows(values).mean(0, keepdim=True).expand_as(values) for values in question.values]


def first_row(question: Question) -> list[torch.Tensor]:
    """The first row, in all of them."""
    return [_rows(values)[:1].expand_as(values) for values in question.values]


def half_the_rows(question: Question) -> list[torch.Tensor]:
    """The first half of the rows; zeros in the others."""
    return [_with_zeros_after(_rows(values), (len(values) + 1) // 2) for values in question.values]


def zeros_for_what_is_small(question: Question) -> list[torch.Tensor]:
    """Zeros for all that is far below the error bound, as beside elements of -1e9, where that is a tenth of an output
    at least."""
    unseen = [e.is_unseen(e.values) for e in question.drawn.expected]
    if not any(u.numel() and float(u.double().mean()) >= UNSEEN_SHARE for u in unseen):
        raise Unfit
    return [values.masked_fill(u, 0) for values, u in zip(question.values, unseen, strict=True)]


def the_input(question: Question) -> list[torch.Tensor]:
    """For each output an input of its shape."""
    given = question.drawn.data.given
    found = [[t.double() for t in given if t.shape == values.shape] for values in question.values]
    if not all(found):
        raise Unfit
    return [fitting[0] for fitting in found]


def the_first_case_s(question: Question) -> list[torch.Tensor] | None:
    """What was right for the first case, repeated to the size of this one."""
    if question.drawn.expected is question.earlier:
        return None
    if len(question.earlier) != len(question.values) or not all(e.values.numel() for e in question.earlier):
        raise Unfit
    return [_repeated(e.values, values) for e, values in zip(question.earlier, question.values, strict=True)]


def the_call_before_s(question: Question) -> list[torch.Tensor] | None:
    """What was right for other data on the same weights."""
    further = question.drawn.further
    return None if further is None else [expected.values for expected in further.inputs.expected]


def in_half_precision(question: Question) -> list[torch.Tensor] | None:
    """Inputs and parameters rounded to fp16."""
    return _rounded(question, lambda tensor: tensor.half().double(), torch.finfo(torch.float16).eps)


def in_bfloat16(question: Question) -> list[torch.Tensor] | None:
    return _rounded(question, lambda tensor: tensor.bfloat16().double(), torch.finfo(torch.bfloat16).eps)


def in_tf32(question: Question) -> list[torch.Tensor] | None:
    return _rounded(question, _tf32, torch.finfo(torch.float32).eps * 2**TF32_DROPPED_BITS)


def statistics_of_half_a_row(question: Question) -> list[torch.Tensor] | None:
    """Each half of the last dimension as if the other half held the same; None where that is the whole answer, since
    no element depends on another."""
    given = [tensor.double() if tensor.is_floating_point() else tensor for tensor in question.drawn.data.given]
    width = max((t.shape[-1] for t in given if t.dim()), default=0)
    if width < 2 or not all(t.dim() and t.shape[-1] == width for t in (*given, *question.values)):
        raise Unfit
    half = width // 2
    left = _computed(question, [torch.cat([t[..., :half], t[..., : width - half]], -1) for t in given])
    right = _computed(question, [torch.cat([t[..., width - half :][..., :half], t[..., half:]], -1) for t in given])
    both = [torch.cat([a[..., :half], b[..., half:]], -1) for a, b in zip(left, right, strict=True)]
    return None if all(map(torch.equal, both, question.values)) else both


def maxima_from_zero(question: Question) -> list[torch.Tensor] | None:
    """The reference with maxima that begin with 0; None where what they are taken of is never negative, as after ReLU.
    Inputs of the other sign show that it might be, where this case's are all positive."""
    given = question.drawn.data.given
    mode, mirrored = MaximaFromZero(), MaximaFromZero()
    outputs = _computed(question, given, mode=mode)
    if mode.used and not mode.below_zero:
        _computed(question, [-t if t.is_floating_point() else t for t in given], mode=mirrored)
    return outputs if mode.below_zero or mirrored.below_zero else None


def softmax_without_maximum(question: Question) -> list[torch.Tensor] | None:
    """Softmax of exponentials that no maximum was taken off; None where they cannot leave the range, as after tanh."""
    given = question.drawn.data.given
    dtype = torch.float64 if any(t.dtype is torch.float64 for t in given) else torch.float32
    mode, stretched = ExponentialsAsTheyAre(dtype), ExponentialsAsTheyAre(dtype)
    outputs = _computed(question, given, mode=mode)
    if mode.used and not mode.out_of_range:
        larger = [t.double() * STRETCHED if t.is_floating_point() else t for t in given]
        _computed(question, larger, mode=stretched)
    return outputs if mode.out_of_range or stretched.out_of_range else None


def without_weight(question: Question) -> list[torch.Tensor] | None:
    return _without(question, "weight", 1.0)


def without_bias(question: Question) -> list[torch.Tensor] | None:
    return _without(question, "bias", 0.0)


ANSWERS: dict[str, Answer] = {
    "zeros": zeros,
    "ones": ones,
    "the mean of all": one_mean,
    "the mean over the batch": mean_over_batch,
    "the first row in all": first_row,
    "half the rows": half_the_rows,
    "zeros for what is small": zeros_for_what_is_small,
    "the input": the_input,
    "the first case's answer": the_first_case_s,
    "the answer to other data": the_call_before_s,
    "fp16 inside": in_half_precision,
    "bf16 inside": in_bfloat16,
    "TF32 inside": in_tf32,
    "statistics of half a row": statistics_of_half_a_row,
    "maxima from 0": maxima_from_zero,
    "softmax without its maximum": softmax_without_maximum,
    "no weight": without_weight,
    "no bias": without_bias,
}


def _rows(values: torch.Tensor) -> torch.Tensor:
    """`values`, which must have rows: more than one of them."""
    if not values.dim() or len(values) < 2:
        raise Unfit
    return values


def _with_zeros_after(values: torch.Tensor, count: int) -> torch.Tensor:
    kept = values.clone()
    kept[count:] = 0
    return kept


def _repeated(values: torch.Tensor, form: torch.Tensor) -> torch.Tensor:
    flat = values.reshape(-1)
    return flat.repeat(-(-form.numel() // len(flat)))[: form.numel()].reshape(form.shape)


def _computed(
    question: Question,
    given: Sequence[torch.Tensor],
    change: Callable[[str, torch.Tensor], torch.Tensor] | None = None,
    mode: contextlib.AbstractContextManager | None = None,
) -> list[torch.Tensor]:
    """The reference in float64 on `given`, within `mode`, its parameters replaced by what `change` gives for name and
    value."""
    model = copied(question.drawn.reference.function()).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if change:
                parameter.copy_(change(name, parameter))
        with mode or contextlib.nullcontext():
            return exact_outputs(model, given)


def _rounded(
    question: Question, rounding: Callable[[torch.Tensor], torch.Tensor], eps: float
) -> list[torch.Tensor] | None:
    """With inputs and parameters rounded to a machine epsilon of `eps`, where the case's own are finer."""
    given = question.drawn.data.given
    finest = min((torch.finfo(t.dtype).eps for t in given if t.is_floating_point()), default=eps)
    if finest >= eps:
        return None
    rounded = [rounding(t) if t.is_floating_point() else t for t in given]
    return _computed(question, rounded, lambda _name, parameter: rounding(parameter))


def _tf32(tensor: torch.Tensor) -> torch.Tensor:
    half = 1 << (TF32_DROPPED_BITS - 1)
    bits = tensor.float().contiguous().view(torch.int32) + half
    return (bits & ~((1 << TF32_DROPPED_BITS) - 1)).view(torch.float32).double()


def _without(question: Question, kind: str, neutral: float) -> list[torch.Tensor] | None:
    """With every parameter of that name set to what changes nothing."""
    reference = question.drawn.reference
    if not any(name.rsplit(".", 1)[-1] == kind for name, _ in reference.model.named_parameters()):
        return None
    return _computed(
        question,
        question.drawn.data.given,
        lambda name, value: torch.full_like(value, neutral) if name.rsplit(".", 1)[-1] == kind else value,
    )
