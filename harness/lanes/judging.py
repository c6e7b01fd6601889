"""A lane's program: `python -m harness.lanes.judging DEVICE ISOLATION`.

It loads what judging on the device needs (without a name: on the usual one here), and judges what standard input
names, one after the other (harness.lanes.wire), until that ends. What is loaded stays: torch, the process that workers
are forked from, and on a GPU the context.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from harness import crash, process
from harness.device.choose import usual_device
from harness.errors import HarnessError, Interrupted, UsageError
from harness.events import Event
from harness.isolation.starter import end_zygotes, keep_zygotes
from harness.lanes.loading import ends_with_its_caller, load
from harness.lanes.stages import Stage, stage_of
from harness.lanes.wire import Begins, Job, Judged, Message, NotJudged, Ready, decode_job, decode_proceed, encode
from harness.plan import make_plan, problem_of
from harness.report.formats import json as results_json
from harness.run import RunStopped, run
from harness.storage import cache
from harness.storage.disk import full_is_said
from harness.verdict import Results

# To look how large the cache is takes some 0.05 s.
RENEWED_S = 60.0


class Unwanted(HarnessError):
    """The caller does not want the stage that would begin."""


def main() -> None:
    if not ends_with_its_caller():
        return
    talk = _Talk(sys.stdin.buffer, _standard_output())
    process.prepare()
    keep_zygotes()
    device, isolation = sys.argv[1:]
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        load(device or usual_device(), isolation)
        gc.freeze()  # or each collection would look through torch
        talk.say(Ready())
        with _Cache() as used:
            while line := talk.heard():
                talk.say(_judged(decode_job(line), isolation, talk, used))
                gc.collect()  # what was judged may hold an arena, and Python hardly ever looks for what grew old
    end_zygotes()
    os._exit(0)  # what remains is torch taking itself apart


def _standard_output() -> BinaryIO:
    """What this process speaks on; what a library or a problem prints goes to standard error."""
    spoken = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return spoken


class _Cache(contextlib.ExitStack):
    """Uses the cache, and now and then lets go of it, so that it is kept within its limit."""

    def __init__(self) -> None:
        super().__init__()
        self._since_s = -math.inf

    def renew(self) -> None:
        """Raises HarnessError for a limit that is none."""
        if time.monotonic() - self._since_s > RENEWED_S:
            self.close()
            self._since_s = time.monotonic()
            self.enter_context(cache.in_use())


class _Talk:
    """The two ends of the conversation with the caller."""

    def __init__(self, hears: BinaryIO, speaks: BinaryIO) -> None:
        self._hears = hears
        self._speaks = speaks

    def say(self, message: Message) -> None:
        self._speaks.write(encode(message) + b"\n")
        self._speaks.flush()

    def heard(self) -> bytes:
        """The next line; empty when the caller is gone."""
        line = self._hears.readline()
        return line if line.endswith(b"\n") else b""

    def require(self, stage: Stage) -> None:
        """Raises Unwanted where the caller does not want a stage; waits until the caller lets it begin."""
        self.say(Begins(stage))
        line = self.heard()
        if not line or not decode_proceed(line).wanted:
            raise Unwanted(f"Its caller stopped it before the stage '{stage}'.")


def _judged(job: Job, isolation: str, talk: _Talk, used: _Cache) -> Judged | NotJudged:
    try:
        with full_is_said():
            used.renew()
            results = _results(job, isolation, talk)
    except RunStopped as stopped:
        if isinstance(stopped.cause, Interrupted):
            raise KeyboardInterrupt from stopped
        results = stopped.results  # it had come to its evaluation
    except (UsageError, HarnessError) as error:
        return NotJudged(str(error))
    except Exception:
        return NotJudged(crash.report())
    return Judged(msgspec.Raw(msgspec.json.format(results_json.dumps(results), indent=-1)))


def _results(job: Job, isolation: str, talk: _Talk) -> Results:
    path = Path(job.path)
    if path.is_dir():
        raise UsageError(f"{path} is a folder, and a lane judges one file at a time.")
    talk.require(Stage.STATIC)
    problem = job.options.problem or str(problem_of(path.resolve()))  # one alone: its ALSO_FOR is another's question
    options = msgspec.structs.replace(job.options, problem=problem)
    return run(make_plan(options.arguments(path, isolation)), _stages(talk.require))


def _stages(begin: Callable[[Stage], None]) -> Callable[[Event], None]:
    """Has each stage begin when the first event of it comes."""
    begun = {Stage.STATIC}

    def tell(event: Event) -> None:
        stage = stage_of(event)
        if stage and stage not in begun:
            begun.add(stage)
            begin(stage)

    return tell


if __name__ == "__main__":
    main()
