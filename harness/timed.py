"""What was timed of a case: the whole call and each part of a training step, called and captured."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from harness.verdict import Case, CasePassed, CaseTiming


class Kind(StrEnum):
    """How a call was timed."""

    CALLED = "called"
    """From Python."""
    CAPTURED = "captured"
    """Launched as a CUDA graph."""


def timings_of(case: Case) -> Iterator[tuple[str, Kind, CaseTiming]]:
    """What was timed of a case, each with its part and kind: the whole call, then each part of a training step."""
    if not isinstance(case, CasePassed):
        return
    for part, timing in {"": case.timing, **case.parts}.items():
        if timing:
            yield part, Kind.CALLED, timing
            if timing.captured:
                yield part, Kind.CAPTURED, timing.captured
