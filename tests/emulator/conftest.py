"""Running a file on the emulated device in a process of its own, for all tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.paths import emulator_cache

HERE = Path(__file__).parent


class Emulator:
    """Starts tests/emulator/driver.py; what it built stays in the cache, named by its content."""

    def __init__(self, cache: Path):
        self.cache = cache

    def run(self, file: Path, *options: str) -> dict[str, Any]:
        """The driver's answer for `file`."""
        command = [sys.executable, str(HERE / "driver.py"), str(file), str(self.cache), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, f"the driver died with {done.returncode}:\n{done.stderr[-4000:]}"
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def emulator() -> Emulator:
    """The emulator with the cache that eval.py uses: both need the same libraries and precompiled headers."""
    return Emulator(emulator_cache())
