"""A process that has loaded what a judge needs, as the one that started it sees it: started, told, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import IO, Self

from harness.paths import ROOT

# A judge ends its workers and compilers when it is told to end, which takes a moment; what does not end is killed, and
# the system ends its workers.
END_S = 15.0

# Results of many cases, each with the samples of all baselines, are megabytes.
_MOST_OF_A_LINE = 1 << 28


class Standby:
    """A process of its own group, so that keys on the terminal do not reach it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._is_ended = False

    @classmethod
    async def start(cls, module: str, device: str, isolation: str, *, stdout: int, stderr: int | IO[bytes]) -> Self:
        """`python -m MODULE DEVICE ISOLATION`, whose first act is that of harness.lanes.loading."""
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", module, device, isolation,
            stdin=asyncio.subprocess.PIPE, stdout=stdout, stderr=stderr,
            env={**os.environ, "PYTHONPATH": path}, start_new_session=True, limit=_MOST_OF_A_LINE,
        )  # fmt: skip
        return cls(process)

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    async def tell(self, line: bytes) -> None:
        """Send a line, without its end. One that has ended does not hear it, and its code says so."""
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(line + b"\n")
            await self._process.stdin.drain()

    async def end(self) -> None:
        """End it, and wait until it is gone with all that it has started."""
        self._is_ended = True
        if self.is_alive:
            self._send(signal.SIGTERM)
            try:
                await asyncio.wait_for(self._process.wait(), END_S)
            except TimeoutError:
                self._send(signal.SIGKILL)
                await self._process.wait()

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
