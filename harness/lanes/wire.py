"""What a lane and its caller say to each other: a line of JSON each.

The caller sends a Job. The lane answers with a Begins for each stage, and waits for a Proceed each time; then with one
Judged or NotJudged. Before its first job it says Ready.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from harness.lanes.options import Options
from harness.lanes.stages import Stage


class Job(Struct, frozen=True, kw_only=True):
    """A submission's file, and how it is judged."""

    path: str
    options: Options


class Proceed(Struct, frozen=True):
    """Whether the stage is wanted."""

    wanted: bool


class Ready(Struct, frozen=True, tag=True):
    """All that judging needs is loaded."""


class Begins(Struct, frozen=True, tag=True):
    """A stage would begin now."""

    stage: Stage


class Judged(Struct, frozen=True, tag=True):
    """The results as harness.report.formats.json writes them, in one line."""

    results: Raw


class NotJudged(Struct, frozen=True, tag=True):
    """There is no evaluation, for a reason that is a sentence."""

    message: str


Message = Ready | Begins | Judged | NotJudged

encode = msgspec.json.encode
decode_message = msgspec.json.Decoder(Message).decode
decode_job = msgspec.json.Decoder(Job).decode
decode_proceed = msgspec.json.Decoder(Proceed).decode
