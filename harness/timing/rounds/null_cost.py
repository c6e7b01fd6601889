"""What a round costs beside its calls, measured with rounds of the null kernel."""

from __future__ import annotations

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
        costs: dict[str, Cost] = {}
        for group in self._alike(rounds):
            median_s = float(np.median([played.elapsed_s for played in group]))
            cost = self._measure(group[0].calls, median_s)
            costs |= {played.contender.name: cost for played in group}
        return costs

    def _alike(self, rounds: Sequence[Round]) -> list[list[Round]]:
        """`rounds` in groups that one null round serves."""
        groups: list[list[Round]] = []
        for played in sorted(rounds, key=lambda played: (played.calls, played.elapsed_s)):
            shortest = groups[-1][0] if groups else None
            if shortest and shortest.calls == played.calls and self._lasts_alike(shortest, played):
                groups[-1].append(played)
            else:
                groups.append([played])
        return groups

    def _lasts_alike(self, shorter: Round, longer: Round) -> bool:
        return not self._by_length or longer.elapsed_s < 2 * shorter.elapsed_s

    def _measure(self, calls: int, elapsed_s: float) -> Cost:
        """A null round of `calls` that takes about `elapsed_s`, less the time that the device worked on its calls: the
        null kernel is ours, and what it says of that can be believed."""
        with of_the_judge(NULL_KERNEL):
            lasts_us = min((elapsed_s - self._last_s) * 1e6, LONGEST_NULL_US)
            played = play_mapped(self._player, self._null, calls, lasts_us)
        self._null.processor_s.append(played.processor_s)
        self._last_s = played.elapsed_s - played.device_us / 1e6
        return Cost(self._last_s, played.processor_s.timed)
