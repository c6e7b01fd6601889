"""A lane as its caller sees it."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Awaitable, Callable
from typing import IO

from harness.errors import HarnessError, one_line
from harness.lanes.stages import Stage
from harness.lanes.standby import Standby
from harness.lanes.wire import Begins, Job, Judged, Message, NotJudged, Proceed, Ready, decode_message, encode

# Is told of each stage before it begins, and answers whether it is wanted.
Asks = Callable[[Stage], Awaitable[bool]]


class LaneEnded(HarnessError):
    """The lane's process has ended, and nobody had asked it to."""


class NeverBegan(LaneEnded):
    """It had ended before it began what it was given: it was killed while it judged nothing."""


class Lane(Standby):
    """A process that judges one submission after the other. What ends it costs the one that it judges."""

    _said: IO[bytes]

    @classmethod
    async def begin(cls, device: str, isolation: str) -> Lane:
        """Start one, and wait until it has loaded. Raises LaneEnded where it cannot."""
        said = tempfile.TemporaryFile(prefix="kernelgate-lane-")  # noqa: SIM115  `end` closes it
        heard = asyncio.subprocess.PIPE
        lane = await cls.start("harness.lanes.judging", device, isolation, stdout=heard, stderr=said)
        lane._said = said
        try:
            assert isinstance(await lane._hear(), Ready)
        except BaseException:
            await lane.end()
            raise
        return lane

    async def judge(self, job: Job, asks: Asks) -> Judged | NotJudged:
        """What the lane says of the job. Raises LaneEnded; NeverBegan where another may be given the job."""
        await self.tell(encode(job))
        begun = False
        while True:
            try:
                heard = await self._hear()
            except LaneEnded as ended:
                raise ended if begun else NeverBegan(str(ended)) from ended
            begun = True
            match heard:
                case Begins(stage):
                    await self.tell(encode(Proceed(await asks(stage))))
                case Judged() | NotJudged() as last:
                    return last

    async def _hear(self) -> Message:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise LaneEnded(
                f"The process that judged it ended {how_it_ended(await self._process.wait())}.{self._last_words()}"
            )
        return decode_message(line)

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return f" It last printed: {one_line(lines[-1].strip()[:300])}" if lines else ""

    async def end(self) -> None:
        await super().end()
        self._said.close()


def how_it_ended(code: int) -> str:
    """In words, from what asyncio and multiprocessing have as a process's exit code."""
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
