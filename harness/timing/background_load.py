"""What else ran on the processors while something was timed on them."""

from __future__ import annotations

import time

import psutil

# Beyond this share of the processors it is said. A system at rest takes about a hundredth.
NOTICED_SHARE = 0.05


class BackgroundLoad:
    """Counts the processor time of everybody but the judge and its workers, from when it is made."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._before_s = _others_s()

    def share(self) -> float:
        """Of all processors, and what their host took from this machine counts, too: from 0 to 1."""
        available_s = (time.monotonic() - self._since) * (psutil.cpu_count() or 1)
        return max(0.0, _others_s() - self._before_s) / available_s


def _others_s() -> float:
    """Seconds of processor time so far, ours taken off."""
    everybody = psutil.cpu_times()
    idle_s = everybody.idle + getattr(everybody, "iowait", 0.0)
    # Linux counts guests among users.
    all_s = sum(everybody) - getattr(everybody, "guest", 0.0) - getattr(everybody, "guest_nice", 0.0)
    return all_s - idle_s - _own_s()


def _own_s() -> float:
    judge = psutil.Process()
    total_s = 0.0
    for process in (judge, *judge.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total_s += times.user + times.system + times.children_user + times.children_system
    return total_s
