"""What a process does that will judge before it is told what: it loads what judging needs, and ends with its caller.

To load what a judge and its workers load takes longer than to judge a small case, and needs nothing of a submission.
"""

from __future__ import annotations

import ctypes
import os
import signal

from harness.device.choose import is_prepared
from harness.errors import HarnessError
from harness.isolation.levels import choose_isolation
from harness.isolation.starter import load_ahead

_PR_SET_PDEATHSIG = 1


def ends_with_its_caller() -> bool:
    """Have SIGTERM come when the process that started this one is gone; whether it is still there."""
    caller = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    return os.getppid() == caller


def load(device: str, isolation: str) -> None:
    """What is loaded when a submission is judged on `device`. What cannot be had here judging will say."""
    try:
        if is_prepared(device, [], check=False):  # an emulator that is yet to be built would be built here, and unsaid
            load_ahead(device, choose_isolation(isolation, device))
    except HarnessError:
        return
    import harness.environment
    import harness.judge
    import harness.problem
    import harness.report.formats.json
    import harness.report.formats.terminal
    import harness.run
    import harness.store  # noqa: F401
