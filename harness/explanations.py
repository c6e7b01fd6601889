"""Why a result is wrong, as values with their numbers.

harness.diagnosis finds them, harness.report.explanations puts each into words, and nothing else does.
"""

from __future__ import annotations

from msgspec import Struct


class _Explanation(Struct, frozen=True, kw_only=True, tag_field="cause"):
    pass


class Unexplained(_Explanation, frozen=True, tag="none"):
    """Hypotheses were tried, and none gives the result within the tolerance."""


class LeftOut(_Explanation, frozen=True, tag="left_out"):
    """It is as with a parameter of ones or zeros, or without an input or a step."""

    what: str


class Swapped(_Explanation, frozen=True, tag="swapped"):
    """Two parameters, two inputs or two results stand in each other's place."""

    one: str
    other: str


class Negated(_Explanation, frozen=True, tag="negated"):
    """A parameter or an input comes in with the other sign."""

    what: str


class Misread(_Explanation, frozen=True, tag="misread"):
    """A tensor was read, or the output written, in another order of memory than it has."""

    what: str
    how: str
    """`contiguous`: as if its strides were; `transposed`: with its last two dimensions exchanged; `int32`: as if its
    whole numbers of 64 bits had 32."""


class Multiple(_Explanation, frozen=True, tag="multiple"):
    """A constant multiple of what it should be; with `before`, a parameter's name, ahead of what that one adds."""

    factor: float
    before: str = ""


class Offset(_Explanation, frozen=True, tag="offset"):
    """The same amount was added to each element."""

    amount: float


class Constant(_Explanation, frozen=True, tag="constant"):
    """Each element is the same number."""

    value: float


class Unwritten(_Explanation, frozen=True, tag="unwritten"):
    """Each element is NaN, as memory is that nothing was written to."""


class Returned(_Explanation, frozen=True, tag="returned"):
    """It is an input or the upstream gradient, unchanged."""

    what: str


class Displaced(_Explanation, frozen=True, tag="displaced"):
    """Each element stands so many places after its own, in memory."""

    by: int


class VarianceDivisor(_Explanation, frozen=True, tag="variance_divisor"):
    """The variance is divided by `divisor` and not by `expected`."""

    divisor: str
    expected: str


class EpsOutsideRoot(_Explanation, frozen=True, tag="eps_outside_root"):
    """eps is added to the root and not below it."""


class OtherEps(_Explanation, frozen=True, tag="other_eps"):
    """`used` stands where eps should: 0 where eps is left out, None where several numbers come to the same."""

    used: float | None
    expected: float


class MeanKept(_Explanation, frozen=True, tag="mean_kept"):
    """The mean was not taken off."""


class MeanTakenOff(_Explanation, frozen=True, tag="mean_taken_off"):
    """The mean was taken off, which the reference does not do."""


class OtherGelu(_Explanation, frozen=True, tag="other_gelu"):
    """GELU in the form `used`."""

    used: str
    expected: str


class MaximaFromZero(_Explanation, frozen=True, tag="maxima_from_zero"):
    """A maximum begins with 0, so that it is never negative."""


class OtherDimension(_Explanation, frozen=True, tag="other_dimension"):
    """What goes along the dimensions `expected` of a tensor that has `of` goes along those `used`, from 0."""

    used: list[int]
    expected: list[int]
    of: int


class OtherStep(_Explanation, frozen=True, tag="other_step"):
    """Another step stands in a step's place."""

    used: str
    """`sum`, where a mean is asked for, `mean`, where a sum is; `smallest`, where the largest is, `largest`;
    `other_end`: the smallest sorted, or topmost, for the largest, or the other way round; `backwards`: in the opposite
    order; `mask_inverted`; `diagonal_above` and `diagonal_below`: a triangle begins one diagonal too far up, or down;
    `exclusive`: a running sum without the element itself; `from_the_end`: a running one from the end;
    `halves_swapped`: of what is split in two; `kernel_flipped`: of a convolution."""


class PartOfRow(_Explanation, frozen=True, tag="part_of_row"):
    """Sums are over some of the elements that they should be over."""

    start: int
    used: int
    """So many from `start` on, where `lanes` says nothing else."""
    of: int
    divided_by: int
    """What a mean was divided by: `used` or `of`."""
    lanes: int = 0
    """Where they are the first 32 of so many, over and over."""


class SumLeftOut(_Explanation, frozen=True, tag="sum_left_out"):
    """As with zeros in place of one of the reference's sums or means."""

    terms: int
    number: int
    """Which of those that it computes, from 1, as in `count`."""
    count: int


class Cancelled(_Explanation, frozen=True, tag="cancelled"):
    """The variance is off by as much as E[x^2] - m^2 rounds in float32; the mean is large beside it."""

    mean_over_deviation: float | None
    """Of the worst row; None where all its elements are equal."""


class Rounded(_Explanation, frozen=True, tag="rounded"):
    """Something was rounded to `dtype`: `inputs`, `output`, `steps` in between, or `sums` as they were added up."""

    what: str
    dtype: str


class Earlier(_Explanation, frozen=True, tag="earlier"):
    """It is of an earlier call: its `result`, or what its `weights`, its `inputs` or one parameter of it give."""

    what: str


class KeptFromBefore(_Explanation, frozen=True, tag="kept_from_before"):
    """A new model is right on the same data, so that what is wrong comes from the calls before."""


class NotDeterministic(_Explanation, frozen=True, tag="not_deterministic"):
    """Another call on the same data gave another result, by more than the tolerance."""

    differing: int
    of: int


class Places(Struct, frozen=True, kw_only=True):
    """Some of `count` rows or columns: `start` to `stop`, or with `period` those whose number, modulo it, is that."""

    start: int
    stop: int
    count: int
    period: int = 0


class Region(_Explanation, frozen=True, tag="region"):
    """All else is right. Rows and columns are those of the output with its dimensions up to `split` as rows."""

    content: str
    """`nan`, `zero` or `wrong`."""
    split: int
    """0 where the output is one row."""
    rows: Places | None = None
    """None for all, as in `columns`."""
    columns: Places | None = None
    dimension: int | None = None
    """Where it is not None: all of the output at some places of this dimension, which stand in `columns`."""


class Border(_Explanation, frozen=True, tag="border"):
    """All is right but the elements within `width` of the border of the last `dimensions`."""

    width: int
    dimensions: int


Explanation = (
    Unexplained
    | LeftOut
    | Swapped
    | Negated
    | Misread
    | Multiple
    | Offset
    | Constant
    | Unwritten
    | Returned
    | Displaced
    | VarianceDivisor
    | EpsOutsideRoot
    | OtherEps
    | MeanKept
    | MeanTakenOff
    | OtherGelu
    | MaximaFromZero
    | OtherDimension
    | OtherStep
    | PartOfRow
    | SumLeftOut
    | Cancelled
    | Rounded
    | Earlier
    | KeptFromBefore
    | NotDeterministic
    | Region
    | Border
)


class FailingCases(Struct, frozen=True, kw_only=True):
    """Which of the judged cases fail: those whose `feature` stands in `relation` to `value`, and no others. Where there
    is no such rule, and where all fail, `feature` is empty."""

    failed: int
    """How many failed."""
    judged: int
    """How many were judged."""
    feature: str = ""
    """D, rows, elements, dtype, layout, distribution: D is the first input's last dimension."""
    relation: str = ""
    """`=`, `>`, `<`, or `not a multiple of`."""
    value: str = ""
    """Of the feature, as text."""
    shapes: list[str] = []
    """Of failing cases, without repetition; a few."""
