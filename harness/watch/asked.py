"""What a session judges, and how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Asked:
    """What a session judges, and how."""

    path: Path
    """A submission, or a folder of them."""
    problem: str | None = None
    device: str | None = None
    isolation: str = "auto"
    check: bool = False
    words: tuple[str, ...] = ()
    """Options of eval.py for every run."""
    words_of_times: tuple[str, ...] = ()
    """Those for runs that time alone."""
