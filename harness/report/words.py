"""Notes as sentences."""

from __future__ import annotations

from harness import notes
from harness.notes import Note


def sentence(note: Note) -> str:
    """What a note says to people."""
    match note:
        case notes.OneCaseTimed():
            return f"--quick timed '{note.case}' and not the {note.untimed} after it."
        case notes.BaselineLeftOut():
            return f"{_where(note)}{note.baseline} was left out: {note.why}"
        case notes.BaselineBelowNoise():
            return f"{_where(note)}{note.baseline} was left out: its time was lost in the noise of a busy machine."
        case notes.BaselineEnded():
            return f"'{note.case}': {note.baseline} did not live to the end: {note.why}"
        case notes.NotCaptured():
            where = "" if not note.cases else " on " + ", ".join(f"'{case}'" for case in note.cases)
            who = "The submission" if note.implementation == notes.SUBMISSION else note.implementation
            return f"{who} has no captured time{where}: {note.why}"
        case notes.InputsUnchanged():
            return (
                f"{_where(note)}the inputs hold no floating numbers, so they do not change when a round begins: a time "
                "of results that were kept from earlier rounds would not be found out."
            )
        case notes.BusyMachine():
            return (
                f"{_where(note)}other programs took {note.share:.0%} of the processors meanwhile, so that its times "
                "and speedups may be far off, whatever their intervals say. Run it again when the machine is quiet."
            )
        case notes.FasterThanMemory():
            return (
                f"{_where(note)}a call took less time than moving its bytes takes at the best bandwidth measured here, "
                "though its interval leaves it open. Measured again, it did so again. The submission is not ranked."
            )
        case notes.SanitizerFound():
            return f"{note.tool}: {note.message}"
        case notes.SanitizerFailed():
            return f"{note.tool} could not finish: {note.why}"
        case notes.SanitizerSilent():
            return f"compute-sanitizer found nothing: {', '.join(note.tools)}."
        case notes.MayRun():
            return (
                f"Submissions may call {', '.join(note.operators)}: the reference is much more than that, and the "
                "problem does not say what is to be replaced. FORBIDDEN_OPS in its file would."
            )
        case notes.SmallerBatch():
            return (
                f"'{note.case}' was judged with a first dimension of {note.batch} in place of {note.whole}: for all of "
                f"it the judge and its workers need some {note.bytes_needed / 2**30:.1f} GiB, and "
                f"{note.bytes_free / 2**30:.1f} GiB are free."
            )
        case notes.Sentence():
            return note.text


def _where(
    note: notes.BaselineLeftOut
    | notes.BaselineBelowNoise
    | notes.InputsUnchanged
    | notes.BusyMachine
    | notes.FasterThanMemory,
) -> str:
    if not note.case:
        return ""
    return f"'{note.case}', {note.part}: " if note.part else f"'{note.case}': "
