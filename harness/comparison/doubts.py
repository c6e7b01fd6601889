"""Times that the judge itself doubts, by its notes: what they say of a difference is nothing, whatever their rounds."""

from __future__ import annotations

from harness.notes import BusyMachine, Disturbed, FasterThanMemory, Note, TooNoisyToRank
from harness.timed import Kind
from harness.verdict import Evaluation


def doubt_of(evaluation: Evaluation, case: str, part: str, kind: Kind) -> str:
    """Why one time of it is in doubt, in a word or two; nothing where it is not."""
    return next((word for note in evaluation.notes if (word := _word(note, case, part, kind))), "")


def _word(note: Note, case: str, part: str, kind: Kind) -> str:
    captured = kind is Kind.CAPTURED
    match note:
        case TooNoisyToRank() if note.case == case and not captured:
            return "too noisy"
        case BusyMachine() if (note.case, note.part) == (case, part):
            return "busy machine"
        case Disturbed() if (note.case, note.part, note.captured) == (case, part, captured):
            return "disturbed"
        case FasterThanMemory() if (note.case, note.part) == (case, part):
            return "faster than memory"
    return ""
