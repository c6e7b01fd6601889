"""How much the same submission differs from one run to the next, beyond what the rounds of either show.

The figures are of H200s whose hosts others share. `tests/test_compare.py` compares every baseline of results/ that was
timed beside several submissions with itself: more than 1,000 pairs of runs of the same code, on H200s and an H100.
"""

from __future__ import annotations

import math

from harness.verdict import KNOWN_WITHIN, Timing

# A share. 20 evaluations of one submission on a case of 67 µs differ by up to 1.5% over eager, by up to 1.8% without it
# (results/h200/repeatability.json); a submission and its copy by up to 0.8% (results/h200/same_twice_*.json). On
# two H100s of one host that were timed at once, 24 of 191 pairs of runs of the same code differ by surely more than 1%,
# and 12 by surely more than this (results/h100; tests/test_compare.py).
BETWEEN_RUNS = 0.015

# Microseconds, of which short calls feel more: what a round costs beside its calls is known no better. The judge's own
# target for calls below 50 µs (README.md); two evaluations of `speed_of_light` and of `rung5_split_rows` on two days
# (results/h200/layernorm.json and same_twice_*.json) differ by up to 1.0 µs on cases of 18 to 40 µs, and one by 1.7 µs.
BETWEEN_RUNS_US = 1.0

# A share: on a CPU whatever else runs moves whole cases. As near as the judge asks a time to be known there before it
# ranks it (harness.verdict.KNOWN_WITHIN).
BETWEEN_RUNS_CPU = KNOWN_WITHIN

# A share. Python and launches took up to 1.9 times as long in another run, so that what is launch-bound may, too.
BETWEEN_RUNS_LAUNCH_BOUND = 1.0

# Launching decides a call's time from this share of it on: as in what reports call launch-bound.
LAUNCHING_DECIDES = 0.9

# In a training step autograd comes between, on a thread of its own: at shares of 0.62 and 0.68 the same code differed
# by 14% and 7% from run to run; below 0.5 it did not differ by more than its rounds.
LAUNCHING_DECIDES_TRAINING = 0.5


def is_launch_bound(timing: Timing, *, training: bool) -> bool:
    """Whether launching decides the time of a call, by the word of the worker that made it."""
    share = (timing.issue_us or 0.0) / timing.median_us
    return share >= (LAUNCHING_DECIDES_TRAINING if training else LAUNCHING_DECIDES)


def floor_for(shorter_us: float, *, on_cpu: bool, launch_bound: bool) -> float:
    """The logarithm of a ratio up to which two runs do not differ; `shorter_us` is the shorter of their times."""
    if launch_bound:
        return math.log1p(BETWEEN_RUNS_LAUNCH_BOUND)
    share = BETWEEN_RUNS_CPU if on_cpu else BETWEEN_RUNS
    return math.log1p(max(share, BETWEEN_RUNS_US / shorter_us))
