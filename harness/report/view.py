"""How much of the results is shown, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TextIO

from rich.console import Console

from harness.gate.values import Outcome

Color = Literal["auto", "always", "never"]

# Wider than any table: in a file or a log nothing needs to be folded.
WIDTH_OF_FILES = 500


@dataclass(frozen=True)
class View:
    """What a report for people leaves out, the page that it is laid out for, and texts beside the results."""

    quiet: bool = False
    """One line for each submission."""
    verbose: bool = False
    """Every case of several submissions, registers, counts, and what was chosen."""
    checked: bool = False
    """The emulator's detectors watched."""
    width: int = WIDTH_OF_FILES
    """In characters."""
    colored: bool = False
    ranks: bool = True
    """Several submissions to one problem are ranked; not where the boards follow."""
    texts: Mapping[str, bytes] = field(default_factory=dict)
    """Sources of submissions and problems by their SHA-256, for formats that hold them."""
    files: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The files of submissions by their name and SHA-256, as `harness.paths.shown_path` names them."""
    gate: Outcome | None = None
    """What a gate says of the results."""


def console(stream: TextIO, color: Color) -> Console:
    """For a stream of this process: as wide as its terminal, or WIDTH_OF_FILES where it is none."""
    force = {"auto": None, "always": True, "never": False}[color]
    width = None if stream.isatty() else WIDTH_OF_FILES
    return Console(file=stream, force_terminal=force, no_color=color == "never", width=width, highlight=False)
