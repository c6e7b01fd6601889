"""How long is timed, by device and effort."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Patience:
    """Round length, least rounds, and when to stop.

    A round is long beside what the clock adds to it. Timing stops once there are `least_rounds`, and either intervals
    are within the share `half_width` on either side or `budget_s` has passed."""

    round_us: float
    least_rounds: int
    half_width: float
    budget_s: float


# Rounds of a kernel with large parameters differ by 4% on an H100, since these lie elsewhere in each. So who is to tell
# two kernels apart that differ by 5% needs many rounds: "decisive", which the gate asks for.
#
# On an H200 what a round costs beside its calls is mostly known to 100 µs or so: to 2% of 6 ms. From nine samples on,
# the interval of a median leaves out the two outermost; that of six is all of them.
PATIENCE = {
    ("cpu", "quick"): Patience(20_000.0, 6, 0.01, 0.5),
    ("cpu", "usual"): Patience(20_000.0, 9, 0.01, 3.0),
    ("cpu", "thorough"): Patience(20_000.0, 9, 0.0025, 20.0),
    ("cpu", "decisive"): Patience(20_000.0, 9, 0.0025, 20.0),
    ("cuda", "quick"): Patience(3_000.0, 6, 0.01, 0.2),
    ("cuda", "usual"): Patience(6_000.0, 9, 0.01, 0.6),
    ("cuda", "thorough"): Patience(20_000.0, 9, 0.0025, 5.0),
    ("cuda", "decisive"): Patience(20_000.0, 9, 0.0025, 20.0),
}
