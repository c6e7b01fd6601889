"""What a round costs beside its calls, measured with rounds of the null kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.errors import of_the_judge
from harness.timing.rounds.clock import NULL_KERNEL
from harness.timing.rounds.contender import Contender
from harness.timing.rounds.round import Round, RoundPlayer, play_mapped

# A longer wait for the device adds no more to the end of a round.
LONGEST_NULL_US = 20_000.0


@dataclass(frozen=True)
class Cost:
    """What a round cost beside its calls, in seconds: by the judge's clock, and of processors while the clock ran."""

    elapsed_s: float
    processor_s: float


class NullCost:
    """Plays rounds of the null kernel that are like those of contenders."""

    def __init__(self, player: RoundPlayer, null: Contender, *, by_length: bool) -> None:
        """`by_length`, for a GPU: rounds of different lengths have null rounds of their own, as long as they are."""
        self._player = player
        self._null = null
        self._by_length = by_length
        self._last_s = 0.0

    def of(self, rounds: Sequence[Round]) -> dict[str, Cost]:
        """What each of `rounds` cost beside its calls, by its contender's name. One null round serves those of
        as many calls and, `by_length`, of about the same length: none of them twice as long as another.

        Raises JudgeFailed when the null kernel fails."""
        groups: dict[tuple[int, int], list[Round]] = {}
        for played in rounds:
            length = round(math.log2(played.elapsed_s)) if self._by_length else 0
            groups.setdefault((played.calls, length), []).append(played)
        costs: dict[str, Cost] = {}
        for (calls, _), group in groups.items():
            cost = self._measure(calls, float(np.median([played.elapsed_s for played in group])))
            costs |= {played.contender.name: cost for played in group}
        return costs

    def _measure(self, calls: int, elapsed_s: float) -> Cost:
        """A null round of `calls` that takes about `elapsed_s`, less the time that the device worked on its calls: the
        null kernel is ours, and what it says of that can be believed."""
        with of_the_judge(NULL_KERNEL):
            lasts_us = min((elapsed_s - self._last_s) * 1e6, LONGEST_NULL_US)
            played = play_mapped(self._player, self._null, calls, lasts_us)
        self._null.processor_s.append(played.processor_s)
        self._last_s = played.elapsed_s - played.device_us / 1e6
        return Cost(self._last_s, played.processor_s.timed)
