"""Whether two evaluations differ in speed: `compare` gives a `Comparison`, a frozen value."""

from harness.comparison.compare import compare
from harness.comparison.values import Comparison, Difference, Mean, Row, Side

__all__ = ["Comparison", "Difference", "Mean", "Row", "Side", "compare"]
