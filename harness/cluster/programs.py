"""Programs of this project that an actor or a task of Ray's starts: they load torch, and hold a GPU's context, where
Ray's own process never does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from harness.paths import ROOT


def finished(module: str, words: Sequence[str], limit_s: float) -> subprocess.CompletedProcess[bytes]:
    """`python -m MODULE WORDS`, with what it printed. Raises OSError and subprocess.TimeoutExpired."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-P", "-m", module, *words]
    return subprocess.run(command, capture_output=True, timeout=limit_s, env={**os.environ, "PYTHONPATH": path})
