"""Whether a timed evaluation is faster than the one before it, by the test of harness.comparison."""

from __future__ import annotations

from harness.comparison import Difference, Side, compare
from harness.timed import Kind
from harness.verdict import Accepted


def how_it_differs(before: Accepted, after: Accepted) -> str:
    """A Difference in words, that of the mean over all cases; that nothing is said where no rounds of both can be
    compared."""
    compared = compare(before, after, (Side.of(before), Side.of(after)))
    called = [mean for mean in compared.means if mean.kind is Kind.CALLED]
    return str(called[0].difference if called else Difference.NONE)
