"""Times and speedups as people read them."""

from __future__ import annotations

from harness.verdict import Speedup

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


def with_interval(value: float | None, interval: tuple[float, float] | None) -> str:
    if value is None or interval is None:
        return "–"
    return f"{value:.2f}× [{interval[0]:.2f}, {interval[1]:.2f}]"
