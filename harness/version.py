"""Which judge this is."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

HERE = Path(__file__).resolve().parent

# What only asks, tells or keeps: a change there moves no verdict and no time.
_DECIDES_NOTHING = frozenset(
    {"again", "api", "cli", "cluster", "comparison", "crash", "diagnosis", "environment", "events", "exits"}
    | {"explanations", "gate", "lanes", "options", "report", "serve", "shares", "store", "timed", "verbs"}
    | {"version", "watch"}
)
_SOURCES = frozenset({".py", ".h", ".cuh", ".cpp", ".cu"})


@functools.cache
def judge_version() -> str:
    """SHA-256, 12 digits, of the harness's files that decide verdicts and times: equal judges have equal versions,
    however they were installed."""
    digest = hashlib.sha256()
    for path in sorted(HERE.rglob("*")):
        place = path.relative_to(HERE)
        room = place.parts[0].removesuffix(".py")
        if path.suffix in _SOURCES and len(place.parts) + (room != "__init__") > 1 and room not in _DECIDES_NOTHING:
            digest.update(place.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
