"""What the driver and a seat say to each other, as bytes of JSON: nothing of either's is ever unpickled as a value."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from harness.lanes.options import Options


class Task(Struct, frozen=True, kw_only=True):
    """One submission; the texts of its file and its problem's travel beside it."""

    file: str
    """What its file is called."""
    problem: str
    """What its problem's file is called."""
    options: Options
    """Without a problem: the seat has its own file of it."""
    shown: tuple[str, str]
    """How the driver's machine names the two files; commands that repeat a case name them so."""


class About(Struct, frozen=True, kw_only=True):
    """What a seat judges with."""

    node: str
    """Its address."""
    environment: dict[str, Any] = {}
    """As harness.environment describes it, with the isolation."""
    architecture: str = ""
    """Of its GPU, such as 9.0."""
    failure: str = ""
    """Why nothing can be judged there, as a sentence."""


class Part(Struct, frozen=True):
    """A build: its digest, and its files by their names."""

    digest: str
    files: dict[str, bytes]


encode = msgspec.json.encode
decode_task = msgspec.json.Decoder(Task).decode
decode_parts = msgspec.json.Decoder(list[Part]).decode
decode_about = msgspec.json.Decoder(About).decode
