"""A process that becomes eval.py when somebody says with which words: `python -m harness.watch.ahead DEVICE ISOLATION`.

To load what a judge and its workers load takes longer than to judge a small case, and needs nothing of the submission.
So it is done while the file is being edited. One line of JSON on standard input, a list of words, begins the run; the
end of standard input instead of it ends the process.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import sys

from harness.device.choose import is_prepared
from harness.errors import HarnessError
from harness.isolation.levels import choose_isolation
from harness.isolation.starter import load_ahead
from harness.paths import ROOT

_PR_SET_PDEATHSIG = 1


def main() -> None:
    watcher = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)  # when nobody watches, nothing is judged
    if os.getppid() != watcher:
        return
    _load(*sys.argv[1:])
    line = sys.stdin.readline()
    if line.endswith("\n"):
        program = str(ROOT / "eval.py")
        sys.argv = [program, *json.loads(line)]
        runpy.run_path(program, run_name="__main__")


def _load(device: str, isolation: str) -> None:
    """What eval.py would load when it judges. What cannot be had here eval.py will say."""
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


if __name__ == "__main__":
    main()
