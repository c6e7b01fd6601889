"""The cases of an evaluation as a table, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from harness.notes import TooNoisyToRank
from harness.report.figures import duration, ratio
from harness.report.tables import Column
from harness.timed import Kind, timings_of
from harness.verdict import Case, CaseFailed, CasePassed, CaseTiming, Evaluation, ProcessorUse


def has_news(case: Case) -> bool:
    """Whether there is more to say of it than that it passed, or was not reached."""
    return isinstance(case, CaseFailed) or (isinstance(case, CasePassed) and case.timing is not None)


def timed_of(cases: Sequence[Case]) -> list[CasePassed]:
    """Those of them that have times."""
    return [case for case in cases if isinstance(case, CasePassed) and case.timing]


def noisy_of(evaluation: Evaluation) -> set[str]:
    """The cases in which a time is too noisy to rank."""
    return {note.case for note in evaluation.notes if isinstance(note, TooNoisyToRank)}


def counted(cases: Sequence[Case], *, more: bool = True) -> str:
    """How many were left out of a table, by what became of them; `more` where there is one."""
    passed = sum(isinstance(case, CasePassed) for case in cases)
    parts = [f"{passed} {'more ' if more else ''}passed"] if passed else []
    return ", ".join(parts + ([f"{len(cases) - passed} were not run"] if passed < len(cases) else []))


def case_columns(cases: Sequence[Case], noisy: set[str]) -> list[Column]:
    """A row for each case; below it one for each part of a training step that is timed alone, and on a CPU one for
    the processor time of each."""
    timed = [case.timing for case in timed_of(cases) if case.timing]
    baselines = list(dict.fromkeys(name for timing in timed for name in timing.baselines))
    rows: list[list[Text]] = []
    for case in cases:
        words = ["too noisy to rank"] if case.name in noisy else []
        rows.append([*_case_cells(case), *_timing_cells(case.timing, baselines, words)])
        if case.timing and case.timing.processor:
            rows.append([Text("  processor time"), *[Text()] * 3, *_processor_cells(case.timing, baselines)])
        for below, timing in timed_below(case):
            rows.append([Text(f"  {below}"), *[Text()] * 3, *_timing_cells(timing, baselines, [])])
            if timing.processor:
                rows.append([Text("    processor time"), *[Text()] * 3, *_processor_cells(timing, baselines)])
    eager = ["eager"] if "eager" in baselines else []
    of_times = ("time", "±", "of floor", *eager, *(f"vs {name}" for name in baselines), "") if timed else ()
    headings = ("case", "shape", "verdict", "error/eager's", *of_times)
    cells = list(zip(*rows, strict=True))[: len(headings)]
    return [
        Column(heading, column, "left" if heading in ("case", "shape") else "right")
        for heading, column in zip(headings, cells, strict=True)
    ]


def timed_below(case: Case) -> Iterator[tuple[str, CaseTiming]]:
    """What else was timed of a case: the same calls as CUDA graphs, and each part of a training step."""
    for part, kind, timing in timings_of(case):
        words = [f"its {part}"] if part else []
        words += ["captured"] if kind is Kind.CAPTURED else []
        if words:
            yield ", ".join(words), timing


def _case_cells(case: Case) -> tuple[Text, ...]:
    name, shape = Text(case.name + (" (scaled)" if case.scaled else "")), Text(case.shape)
    if isinstance(case, CasePassed):
        return name, shape, Text("pass", style="green"), Text(f"{case.error_ratio:.2f}")
    if isinstance(case, CaseFailed):
        error = "" if case.error_ratio is None else f"{case.error_ratio:,.3g}"
        return name, shape, Text(case.reason, style="red"), Text(error)
    return name, shape, Text("not run", style="yellow"), Text()


def _timing_cells(timing: CaseTiming | None, baselines: Sequence[str], words: Sequence[str]) -> tuple[Text, ...]:
    """`words` stand before what else is said of the times."""
    if timing is None:
        return (Text(),) * (4 + ("eager" in baselines) + len(baselines))
    eager = timing.baselines.get("eager")
    eager_us = [duration(eager.median_us) if eager else "–"] if "eager" in baselines else []
    against = (ratio(timing.baselines[n].speedup) if n in timing.baselines else "–" for n in baselines)
    said = [*words, *(["launch-bound"] if timing.launch_bound else [])]
    if timing.device:
        said.append(f"device says {duration(timing.device.call_us)}")
    label = ", ".join(said)
    time = (duration(timing.median_us), _percent(timing), f"{timing.floor_fraction:.0%}")
    return tuple(Text(cell) for cell in (*time, *eager_us, *against, label))


def _processor_cells(timing: CaseTiming, baselines: Sequence[str]) -> tuple[Text, ...]:
    """As `_timing_cells`, by processor time; no memory's floor is of that."""
    used = {name: timing.baselines[name].processor for name in baselines if name in timing.baselines}
    assert timing.processor is not None
    eager = used.get("eager")
    eager_us = [duration(eager.median_us) if eager else "–"] if "eager" in baselines else []
    against = (ratio(use.speedup) if (use := used.get(name)) else "–" for name in baselines)
    time = (duration(timing.processor.median_us), _percent(timing.processor), "")
    return tuple(Text(cell) for cell in (*time, *eager_us, *against, ""))


def _percent(timing: CaseTiming | ProcessorUse) -> str:
    half = (timing.interval_us[1] - timing.interval_us[0]) / 2 / timing.median_us * 100
    return f"±{half:.1f}%"
