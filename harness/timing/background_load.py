"""How busy other programs kept the processors while something was timed."""

from __future__ import annotations

import time

import psutil

# From this share of the processors on, a note mentions it. An idle system takes about 0.01.
NOTICED_SHARE = 0.05


class BackgroundLoad:
    """Measures the processor time of everything but the judge and its workers, from its construction on."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._before_s = _others_s()

    def share(self) -> float:
        """The share of all processors' time, at least 0. Time that a virtual machine's host took counts, too."""
        available_s = (time.monotonic() - self._since) * (psutil.cpu_count() or 1)
        return max(0.0, _others_s() - self._before_s) / available_s


def _others_s() -> float:
    """Seconds of processor time since the system started, without the judge's and its workers'."""
    everybody = psutil.cpu_times()
    idle_s = everybody.idle + getattr(everybody, "iowait", 0.0)
    # Linux counts the time of guests as users' time, too.
    all_s = sum(everybody) - getattr(everybody, "guest", 0.0) - getattr(everybody, "guest_nice", 0.0)
    return all_s - idle_s - _own_s()


def _own_s() -> float:
    """Seconds of processor time of the judge, its workers and their children that have ended."""
    judge = psutil.Process()
    total_s = 0.0
    for process in (judge, *judge.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total_s += times.user + times.system + times.children_user + times.children_system
    return total_s
