"""Axes: where a value stands, and which values are marked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard

MOST_TICKS = 7


def drawable(value: float | None) -> TypeGuard[float]:
    """Whether a logarithmic axis has a place for it: results come from files that anybody may have written."""
    return value is not None and math.isfinite(value) and 1e-12 < value < 1e15


class Scale(Protocol):
    """An axis."""

    def at(self, value: float) -> float:
        """The place of a value, in the picture's units."""
        ...

    def ticks(self) -> list[float]:
        """Values to mark."""
        ...


@dataclass(frozen=True)
class Log:
    """A logarithmic axis from `low` at `start` to `high` at `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        share = math.log(inside / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Powers of ten, and where they are few their doubles and halves, too."""
        decades = math.log10(self.high / self.low)
        steps: tuple[float, ...] = (1, 2, 5) if decades <= 2.5 else (1,)
        if decades <= 0.35:
            steps = (1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.7, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9)
        exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        found = [step * 10.0**exponent for exponent in exponents for step in steps]
        return thinned([tick for tick in found if self.low <= tick <= self.high], MOST_TICKS)


@dataclass(frozen=True)
class Linear:
    """A linear axis from `low` at `start` to `high` at `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        return self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values, about four."""
        rough = (self.high - self.low) / 4
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
        first = math.ceil(self.low / step)
        return [number * step for number in range(first, math.floor(self.high / step) + 1)]


def log_over(values: Iterable[float | None], start: float, end: float) -> Log:
    """A logarithmic axis on which all drawable `values` have room."""
    found = [value for value in values if drawable(value)] or [1.0]
    low, high = min(found), max(found)
    room = max((high / low) ** 0.05, 1.05)
    return Log(low / room, high * room, start, end)


def linear_over(values: Iterable[float], start: float, end: float) -> Linear:
    """A linear axis on which all `values` have room."""
    found = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(found), max(found)
    room = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    return Linear(low - room, high + room, start, end)


def thinned(values: Sequence[float], most: int) -> list[float]:
    """The first and then evenly spaced ones, `most` at the most."""
    return list(values[:: max(1, math.ceil(len(values) / most))])
