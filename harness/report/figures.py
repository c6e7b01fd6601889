"""Times and speedups as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.verdict import Accepted, Geomeans, Speedup

if TYPE_CHECKING:
    from harness.store.board import Mean

# Two times whose ratio's interval covers 1 do not differ.
NO_DIFFERENCE = "~"


def duration(us: float) -> str:
    """Microseconds in the unit that reads best."""
    if us >= 1000:
        return f"{us / 1000:.3g} ms" if us < 1e5 else f"{us / 1000:,.0f} ms"
    return f"{us:.3g} µs" if us >= 0.1 else f"{us * 1000:.2g} ns"


def ratio(speedup: Speedup | None) -> str:
    if speedup is None:
        return "–"
    return f"{speedup.ratio:.2f}×" if speedup.differs else NO_DIFFERENCE


def over_eager(means: Accepted | Geomeans) -> str:
    """The mean speedup over eager."""
    return with_interval(means.geomean_speedup, means.geomean_interval)


def over_fastest(means: Accepted | Geomeans) -> str:
    """The mean speedup over the fastest baseline of each case."""
    return with_interval(means.geomean_speedup_over_best, means.geomean_over_best_interval)


def mean_of(mean: Mean | None) -> str:
    """A mean of the store's, with its interval where that is known."""
    if mean is None:
        return "–"
    return with_interval(mean.value, mean.interval) if mean.interval else f"{mean.value:.2f}×"


def with_interval(value: float | None, interval: tuple[float, float] | None, digits: int = 2) -> str:
    if value is None or interval is None:
        return "–"
    return f"{value:.{digits}f}× [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"
