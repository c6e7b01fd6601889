"""The stages of judging, each more expensive than the one before."""

from __future__ import annotations

from enum import StrEnum

from harness.events import Building, Event, Judging, TimesBegin


class Stage(StrEnum):
    """A rejection's stage is the one that it happened in."""

    STATIC = "static"
    """The source is read as text; its problem and a device are found."""
    COMPILE = "compile"
    """It is imported, and its extensions are built."""
    VERDICT = "verdict"
    """Its results are compared, case by case."""
    TIMING = "timing"
    """It is right, and its calls are timed."""
    DONE = "done"
    """All that was asked for is known."""


def stage_of(event: Event) -> Stage | None:
    """Which stage an event is of; None where it tells nothing about that."""
    match event:
        case Building():
            return Stage.COMPILE
        case Judging():
            return Stage.VERDICT
        case TimesBegin():
            return Stage.TIMING
    return None
