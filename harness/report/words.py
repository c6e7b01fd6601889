"""Notes as sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from harness import notes
from harness.notes import Note
from harness.records import ClockLimit
from harness.verdict import KNOWN_WITHIN, Conditions, Results

# What holds a GPU's clocks down, as people say it.
CLOCK_LIMITS = {
    ClockLimit.IDLE: "it was idle",
    ClockLimit.APPLICATION_CLOCKS: "its clocks are set so",
    ClockLimit.POWER_CAP: "it reached its power limit",
    ClockLimit.SLOWDOWN: "its hardware slowed it down",
    ClockLimit.SYNC_BOOST: "it keeps step with other GPUs",
    ClockLimit.THERMAL: "it was too hot for its driver",
    ClockLimit.HARDWARE_THERMAL: "it was too hot for its hardware",
    ClockLimit.POWER_BRAKE: "its supply asked for less power",
    ClockLimit.DISPLAY_CLOCKS: "a display sets its clocks",
    ClockLimit.BOARD_LIMIT: "its board allowed no more",
    ClockLimit.RELIABILITY: "its voltage allowed no more",
}


def unfinished(results: Results) -> str:
    """How many of what was asked for a run that was stopped has no word on."""
    return f"{results.unfinished} of {len(results.evaluations) + results.unfinished} were not judged."


def as_sentences(found: Sequence[Note]) -> Iterator[str]:
    """What notes say to people. Cases that are too noisy to rank share one sentence, where the first of them stands."""
    noisy = [note for note in found if isinstance(note, notes.TooNoisyToRank) and note.case]
    for note in found:
        if note not in noisy:
            yield sentence(note)
        elif note is noisy[0]:
            yield _too_noisy(noisy)


def sentence(note: Note) -> str:
    """What a note says to people."""
    match note:
        case notes.OneCaseTimed():
            return f"--quick timed '{note.case}' and not the {note.untimed} after it."
        case notes.BaselineLeftOut():
            return f"{_where(note)}{note.baseline} was left out: {_in_short(note.why)}"
        case notes.BaselineBelowNoise():
            return f"{_where(note)}{note.baseline} was left out: its time was lost in the noise of a busy machine."
        case notes.BaselineEnded():
            return f"'{note.case}': {note.baseline} did not live to the end: {_in_short(note.why)}"
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
        case notes.Disturbed():
            return _disturbed(note)
        case notes.TooNoisyToRank():
            return _too_noisy([note])
        case notes.SanitizerFound():
            return f"{note.tool}: {note.message}"
        case notes.SanitizerFailed():
            return f"{note.tool} could not finish: {note.why}"
        case notes.SanitizerSilent():
            return f"compute-sanitizer found nothing: {', '.join(note.tools)}."
        case notes.DetectorsSilent():
            return (
                f"Run again with all detectors, '{note.case}' showed no race, no access out of bounds, no missing "
                "barrier and no read of what nothing wrote."
            )
        case notes.MayRun():
            return (
                f"Submissions may call {', '.join(note.operators)}: the reference is much more than that, and the "
                "problem does not say what is to be replaced. FORBIDDEN_OPS in its file would."
            )
        case notes.NoKernel():
            return (
                "No kernel of its own was built. To refuse operators that a submission is to replace, list them in "
                "FORBIDDEN_OPS of the problem's file."
            )
        case notes.OtherDefaults():
            return (
                f"ModelNew's constructor has other defaults than Model's: {'; '.join(note.arguments)}. A program that "
                "leaves them out gets something else."
            )
        case notes.SameInEachDraw():
            return (
                f"The same in each draw: {', '.join(note.names)}. A submission may leave out what is in there and "
                "be right; have the problem's file draw it."
            )
        case notes.SameInEachElement():
            return (
                f"{note.output.capitalize()} should be {note.value:g} in each element of all cases: a submission may "
                "compute nothing and be right; have the problem's cases draw data that show more."
            )
        case notes.SmallUnseen():
            return (
                f"In {note.output} at least {note.share:.0%} of the elements are far below the error bound, in all "
                "cases, beside far larger ones: zeros would pass for them. Have the problem's file keep to one scale."
            )
        case notes.TrainingAlone():
            return (
                "The reference gives something else after eval() than in training. What a submission gives then is not "
                "judged, nor what calls leave in buffers, such as running statistics. A problem whose Model calls "
                "eval() on itself judges that."
            )
        case notes.SmallerBatch():
            return (
                f"'{note.case}' was judged with a first dimension of {note.batch} in place of {note.whole}: for all of "
                f"it the judge and its workers need some {note.bytes_needed / 2**30:.1f} GiB, and "
                f"{note.bytes_free / 2**30:.1f} GiB are free."
            )
        case notes.Sentence():
            return note.text


def held_down_by(limits: Iterable[ClockLimit]) -> str:
    """Why clocks were low, in words with commas."""
    return ", ".join(CLOCK_LIMITS[limit] for limit in limits)


def _disturbed(note: notes.Disturbed) -> str:
    """The causes, what was tried, and what becomes of the times."""
    causes = []
    if note.throttled:
        causes.append(f"the GPU was throttled ({held_down_by(map(ClockLimit, note.throttled))})")
    if note.processes:
        one = len(note.processes) == 1
        pids = ", ".join(map(str, note.processes))
        causes.append(f"process{'' if one else 'es'} {pids} used {'it' if causes else 'the GPU'}, too")
    unranked = " The submission is not ranked." if note.is_of_rank else ""
    return (
        f"{_where(note)}while rounds were timed {' and '.join(causes)}. {note.discarded} sets of rounds were played "
        f"again and it went on: the times may be far off. Run it again on a GPU that is cool and free.{unranked}"
    )


def _too_noisy(found: Sequence[notes.TooNoisyToRank]) -> str:
    """Of one case or more, or of the speedup over all of them, with the farthest that each interval reaches."""
    reaches: dict[str, float] = {}
    for note in found:
        for name, reach in note.reaches.items():
            reaches[name] = max(reach, reaches.get(name, reach))
    up_to = "up to " if len(found) > 1 else ""
    wide = [f"that of {_measured(name, found[0].case)} reaches {up_to}{reach:.0%}" for name, reach in reaches.items()]
    named, more = [f"'{note.case}'" for note in found[:2] if note.case], len(found) - 2
    which = f"{', '.join(named)} and {more} more" if more > 0 else " and ".join(named)
    return (
        f"{which}{': ' if which else ''}too noisy to rank: 95% intervals may reach {KNOWN_WITHIN:.0%} to either side, "
        f"and {', '.join(wide)}. Run it again on a quiet machine, or with --thorough."
    )


def _measured(name: str, case: str) -> str:
    """What has the interval: a time in a case, or a speedup over all of them."""
    if not case:
        return f"the speedup over {name}"
    return "the submission" if name == notes.SUBMISSION else name


def conditions(seen: Conditions) -> str:
    """In which state the GPU was, in one line; what NVML did not tell is left out."""
    parts = [
        _range("SM", seen.sm_mhz),
        _range("memory", seen.memory_mhz),
        f"up to {seen.temperature_c} °C" if seen.temperature_c is not None else "",
        f"up to {seen.power_w:.0f} W" if seen.power_w is not None else "",
    ]
    if seen.power_w is not None and seen.power_limit_w is not None:
        parts[-1] += f" of {seen.power_limit_w:.0f}"
    if seen.clock_limits is not None:  # between rounds it is idle
        down = [limit for limit in seen.clock_limits if limit != ClockLimit.IDLE]
        parts.append(f"clocks held down: {held_down_by(down) or 'never'}")
    if seen.other_processes is None:
        parts.append("other processes cannot be seen")
    else:
        parts.append(f"other processes: {', '.join(map(str, seen.other_processes)) or 'none'}")
    if seen.discarded:
        why = [*map(CLOCK_LIMITS.__getitem__, seen.discarded_throttled)]
        why += [f"process {pid} used it" for pid in seen.discarded_beside]
        parts.append(f"sets of rounds played again: {seen.discarded} ({', '.join(why)})")
    return "; ".join(part for part in parts if part)


def _range(what: str, mhz: tuple[int, int] | None) -> str:
    if mhz is None:
        return ""
    low, high = mhz
    return f"{what} at {low} MHz" if low == high else f"{what} at {low} to {high} MHz"


def _in_short(why: str) -> str:
    """The first line of what an implementation said, with the next where it only announces that. JSON has the rest."""
    lines = [line.strip() for line in why.splitlines() if line.strip()]
    announces = len(lines) > 1 and lines[0].endswith(":")
    return " ".join(lines[: 2 if announces else 1])


def _where(
    note: notes.BaselineLeftOut
    | notes.BaselineBelowNoise
    | notes.InputsUnchanged
    | notes.BusyMachine
    | notes.FasterThanMemory
    | notes.Disturbed,
) -> str:
    if not note.case:
        return ""
    captured = "captured" if isinstance(note, notes.Disturbed) and note.captured else ""
    return ", ".join(word for word in (f"'{note.case}'", note.part, captured) if word) + ": "
