"""Which cases fail, in a rule that tells them from those that pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from harness.explanations import FailingCases
from harness.problem import Case

# A rule by size or divisibility needs so many cases on either side: any two numbers are in some order.
FEWEST = 2

# A rule names no more kinds of data, and the line no more shapes.
MOST_KINDS = 3
MOST_SHAPES = 4

_SIZES: dict[str, Callable[[Case], int]] = {
    "D": lambda case: case.shapes[0][-1] if case.shapes and case.shapes[0] else 1,
    "rows": lambda case: math.prod(case.shapes[0][:-1]) if case.shapes and case.shapes[0] else 1,
    "elements": lambda case: sum(map(math.prod, case.shapes)),
}
_KINDS: dict[str, Callable[[Case], str]] = {
    "dtype": lambda case: str(case.dtype).removeprefix("torch."),
    "layout": lambda case: case.layout,
    "distribution": lambda case: case.distribution,
}
_DIVISORS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def failing_cases(failed: Sequence[Case], passed: Sequence[Case]) -> FailingCases | None:
    """The rule for cases as they were judged; None where none failed."""
    if not failed:
        return None
    shapes = list(dict.fromkeys(case.shape_text for case in failed))[:MOST_SHAPES]
    feature, relation, value = next(_rules(failed, passed), ("", "", "")) if passed else ("", "", "")
    return FailingCases(
        failed=len(failed), judged=len(failed) + len(passed), feature=feature, relation=relation, value=value,
        shapes=shapes,
    )  # fmt: skip


def _rules(failed: Sequence[Case], passed: Sequence[Case]) -> Iterator[tuple[str, str, str]]:
    """What tells them apart, the most telling first."""
    if len(passed) < FEWEST:
        return
    sizes = {name: ([size(case) for case in failed], [size(case) for case in passed]) for name, size in _SIZES.items()}
    several = len(failed) >= FEWEST
    for name in ("dtype", "layout"):
        yield from _rules_of_kind(name, failed, passed)
    if several:
        yield from _rules_of_divisors(*sizes["D"])
    yield from _rules_of_kind("distribution", failed, passed)
    for name, (of_failed, of_passed) in sizes.items() if several else ():
        yield from _rules_of_size(name, of_failed, of_passed)


def _rules_of_kind(name: str, failed: Sequence[Case], passed: Sequence[Case]) -> Iterator[tuple[str, str, str]]:
    kinds = sorted({_KINDS[name](case) for case in failed})
    if len(kinds) <= MOST_KINDS and not {*kinds} & {_KINDS[name](case) for case in passed}:
        yield name, "=", " or ".join(kinds)


def _rules_of_divisors(failed: Sequence[int], passed: Sequence[int]) -> Iterator[tuple[str, str, str]]:
    for divisor in _DIVISORS:
        if all(last % divisor for last in failed) and not any(last % divisor for last in passed):
            yield "D", "not a multiple of", str(divisor)


def _rules_of_size(name: str, failed: Sequence[int], passed: Sequence[int]) -> Iterator[tuple[str, str, str]]:
    if min(failed) > max(passed):
        yield name, ">", str(max(passed))
    if max(failed) < min(passed):
        yield name, "<", str(min(passed))
