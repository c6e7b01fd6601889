"""Results for a person at a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from harness.notes import TooNoisyToRank
from harness.records import KernelCounts
from harness.report.figures import duration, over_eager, over_fastest, ratio
from harness.report.tables import Column, print_columns
from harness.report.view import View
from harness.report.words import conditions, sentence
from harness.verdict import (
    Accepted,
    Case,
    CaseFailed,
    CasePassed,
    CaseTiming,
    Evaluation,
    Geomeans,
    ProcessorUse,
    Rejected,
    Results,
)

STATUS_STYLE = {"accepted": "bold green", "rejected": "bold red", "error": "bold yellow"}

HINT = "--check also looks for races, barriers left out and uninitialised reads"


def status_of(evaluation: Evaluation) -> str:
    """The variant's name as JSON has it."""
    return str(evaluation.__struct_config__.tag)


def _percent(timing: CaseTiming | ProcessorUse) -> str:
    half = (timing.interval_us[1] - timing.interval_us[0]) / 2 / timing.median_us * 100
    return f"±{half:.1f}%"


def render(results: Results, view: View) -> str:
    """All evaluations; several of one problem are followed by their ranking."""
    page = io.StringIO()
    console = Console(
        file=page,
        width=view.width,
        force_terminal=view.colored,
        no_color=not view.colored,
        color_system="standard" if view.colored else None,
        highlight=False,
    )
    for evaluation in results.evaluations:
        _print_evaluation(console, evaluation, view, alone=len(results.evaluations) == 1)
    if not view.quiet:
        if view.ranks:
            _print_rankings(console, results.evaluations)
        _print_isolation(console, results.environment.get("isolation", {}), view.verbose)
        _print_unwatched(console, results)
    return page.getvalue()


def _print_evaluation(console: Console, evaluation: Evaluation, view: View, *, alone: bool) -> None:
    """Of several evaluations cases that only passed are counted, unless all are asked for: what is timed or failed
    would drown in them."""
    if not view.quiet and not evaluation.kept_from:
        _print_cases(console, evaluation, verbose=view.verbose, brief=not alone and not view.verbose)
    _print_verdict(console, evaluation, names_problem=view.quiet or bool(evaluation.kept_from))
    if not view.quiet and not view.checked and _failed_on_the_emulator(evaluation):
        console.print(Text(f"  hint: {HINT}", style="dim"), soft_wrap=True)


def _print_rankings(console: Console, evaluations: Sequence[Evaluation]) -> None:
    for problem in dict.fromkeys(evaluation.problem for evaluation in evaluations):
        rivals = [evaluation for evaluation in evaluations if evaluation.problem == problem]
        if len(rivals) > 1:
            what = "Ranking" if any(e.geomean_speedup is not None for e in rivals) else "Verdicts"
            print_columns(console, f"{what} · {problem}", _ranking(rivals))


def _print_isolation(console: Console, isolation: dict[str, Any], verbose: bool) -> None:
    for device, described in isolation.items():
        parts = f": {', '.join(described['contains'])}" if verbose else ""
        lacks = f" ({described['lacks']})" if described["lacks"] else ""
        console.print(Text(f"isolation on {device}: {described['level']}{lacks}{parts}", style="dim"), soft_wrap=True)


def _print_unwatched(console: Console, results: Results) -> None:
    """That nobody saw in which state the GPU was, where something was timed on it."""
    why = results.environment.get("unwatched")
    if why and any(evaluation.device == "cuda" and _timed(evaluation.cases) for evaluation in results.evaluations):
        console.print(Text(why, style="dim"), soft_wrap=True)


def verdict_line(evaluation: Evaluation, *, names_problem: bool = False) -> Text:
    """What became of a submission. Only a message of several lines makes it more than one."""
    status = status_of(evaluation)
    name = f"{evaluation.problem} · {evaluation.submission}" if names_problem else evaluation.submission
    line = Text.assemble((status.upper(), STATUS_STYLE[status]), f"  {name}")
    if isinstance(evaluation, Accepted):
        line.append(_accepted_summary(evaluation))
    else:
        # A submission's own words may hold line ends: no line of theirs may look like one of ours.
        line.append(f"  {evaluation.reason}: {evaluation.message}".replace("\n", "\n    "))
    return line


def _print_verdict(console: Console, evaluation: Evaluation, *, names_problem: bool) -> None:
    line = verdict_line(evaluation, names_problem=names_problem)
    if evaluation.kept_from:
        line.append(f"; judged {evaluation.kept_from[:10]}, --again judges it anew", style="dim")
    console.print(line, soft_wrap=True)
    for note in evaluation.notes:
        console.print(Text(f"  note: {sentence(note)}", style="dim"), soft_wrap=True)
    if not isinstance(evaluation, Accepted) and (failed := _named_in_message(evaluation)):
        console.print(Text(f"  repeat: {failed.repeat}", style="cyan"), soft_wrap=True)


def _named_in_message(evaluation: Evaluation) -> CaseFailed | None:
    """The failed case that the message is about: the first with its reason."""
    failed = [case for case in evaluation.cases if isinstance(case, CaseFailed)]
    reason = getattr(evaluation, "reason", None)
    return next((case for case in failed if case.reason == reason), failed[0] if failed else None)


def _failed_on_the_emulator(evaluation: Evaluation) -> bool:
    """Whether a case was run there and rejected; what was not even built is nothing that detectors could watch."""
    failed = isinstance(evaluation, Rejected) and _named_in_message(evaluation)
    return bool(failed) and evaluation.device == "emulator"


def _compared(evaluation: Accepted) -> bool:
    return evaluation.geomean_speedup is not None or evaluation.geomean_speedup_over_best is not None


def _accepted_summary(evaluation: Accepted) -> str:
    count = len(evaluation.cases)
    passed = f"  {count} case{'s' * (count != 1)} correct"
    if any(isinstance(case, CasePassed) and case.timing for case in evaluation.cases) and not _compared(evaluation):
        return f"{passed}; timed, with no baseline to compare with on every timed case"
    if not _compared(evaluation):
        return f"{passed}; not timed" + (f": {evaluation.not_timed}" if evaluation.not_timed else "")
    text = f"{passed}; speedup over eager {over_eager(evaluation)}, over the fastest of the baselines "
    text += over_fastest(evaluation)
    if captured := evaluation.captured:
        text += f"; captured: over eager {over_eager(captured)}, over the fastest {over_fastest(captured)}"
    return f"{text} (geometric means, 95% intervals)" + ("; too noisy to rank" if evaluation.is_too_noisy else "")


def _has_news(case: Case) -> bool:
    """Whether there is more to say of it than that it passed, or was not reached."""
    return isinstance(case, CaseFailed) or (isinstance(case, CasePassed) and case.timing is not None)


def _print_cases(console: Console, evaluation: Evaluation, *, verbose: bool, brief: bool) -> None:
    shown = [case for case in evaluation.cases if not brief or _has_news(case)]
    if not shown:
        return
    title = " · ".join((evaluation.problem, evaluation.submission, evaluation.device, f"seed {evaluation.seed}"))
    print_columns(console, title, _case_columns(shown, _noisy(evaluation)))
    if left_out := [case for case in evaluation.cases if brief and not _has_news(case)]:
        console.print(Text(f"{_counted(left_out)}; -v shows them", style="dim"))
    _print_versions(console, _timed(evaluation.cases))
    _print_build(console, evaluation, verbose)
    if verbose:
        _print_conditions(console, _timed(evaluation.cases))
        _print_counts(console, evaluation)


def _timed(cases: Sequence[Case]) -> list[CasePassed]:
    return [case for case in cases if isinstance(case, CasePassed) and case.timing]


def _noisy(evaluation: Evaluation) -> set[str]:
    """The cases in which a time is too noisy to rank."""
    return {note.case for note in evaluation.notes if isinstance(note, TooNoisyToRank)}


def _case_columns(cases: Sequence[Case], noisy: set[str]) -> list[Column]:
    """A row for each case; below it one for each part of a training step that is timed alone, and on a CPU one for
    the processor time of each."""
    timed = [case.timing for case in _timed(cases) if case.timing]
    baselines = list(dict.fromkeys(name for timing in timed for name in timing.baselines))
    rows: list[list[Text]] = []
    for case in cases:
        words = ["too noisy to rank"] if case.name in noisy else []
        rows.append([*_case_cells(case), *_timing_cells(case.timing, baselines, words)])
        if case.timing and case.timing.processor:
            rows.append([Text("  processor time"), *[Text()] * 3, *_processor_cells(case.timing, baselines)])
        for below, timing in _below(case):
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


def _below(case: Case) -> Iterator[tuple[str, CaseTiming]]:
    """What else was timed of a case: the same calls as CUDA graphs, and each part of a training step."""
    if not isinstance(case, CasePassed):
        return
    if case.timing and case.timing.captured:
        yield "captured", case.timing.captured
    for part, timing in case.parts.items():
        yield f"its {part}", timing
        if timing.captured:
            yield f"its {part}, captured", timing.captured


def _counted(cases: Sequence[Case]) -> str:
    passed = sum(isinstance(case, CasePassed) for case in cases)
    parts = [f"{passed} more passed"] if passed else []
    return ", ".join(parts + ([f"{len(cases) - passed} were not run"] if passed < len(cases) else []))


def _print_versions(console: Console, timed: list[CasePassed]) -> None:
    found = {name: b.version for case in timed if case.timing for name, b in case.timing.baselines.items() if b.version}
    if found:
        console.print(Text("; ".join(f"{name}: {version}" for name, version in found.items()), style="dim"))


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


def _print_build(console: Console, evaluation: Evaluation, verbose: bool) -> None:
    build = evaluation.build
    if build is None:
        return
    how = "from the cache" if build.cached else f"in {build.seconds:.1f} s"
    spilling = [k for k in build.kernels if k.spill_store_bytes or k.spill_load_bytes]
    spills = f"; {len(spilling)} kernel{'s spill' if len(spilling) > 1 else ' spills'} registers" if spilling else ""
    console.print(Text(f"built {how}{spills}", style="dim"))
    for kernel in build.kernels if verbose else spilling:
        console.print(
            Text(
                f"  {kernel.kernel}: {kernel.registers} registers, {kernel.shared_bytes:,} bytes of shared memory, "
                f"{kernel.spill_store_bytes + kernel.spill_load_bytes} bytes spilled",
                style="dim",
            )
        )


def _print_conditions(console: Console, timed: list[CasePassed]) -> None:
    """In which state a GPU was while each case was timed."""
    for case in timed:
        for below, timing in [("", case.timing), *_below(case)]:
            if timing and timing.conditions:
                name = f"{case.name}, {below}" if below else case.name
                console.print(Text(f"  {name}: {conditions(timing.conditions)}", style="dim"), soft_wrap=True)


def _print_counts(console: Console, evaluation: Evaluation) -> None:
    for case in evaluation.cases:
        for count in case.counts if isinstance(case, CasePassed) else ():
            console.print(Text(f"  {case.name}, {count.kernel}: {_counted_words(count)}", style="dim"))


# Fields of KernelCounts that have words of their own, or none; any other is shown by its name.
_WORDED = {
    "kernel", "launches", "global_read_bytes", "global_write_bytes", "sectors", "ideal_sectors", "atomics", "barriers",
    "bank_conflicts", "worst_bank_conflict", "worst_bank_conflict_line", "not_followed_bytes",
}  # fmt: skip


def _counted_words(count: KernelCounts) -> str:
    others = [name for name in count.__struct_fields__ if name not in _WORDED]
    more = "".join(f", {getattr(count, name):,} {name.replace('_', ' ')}" for name in others)
    return (
        f"{count.launches} launches, reads {count.global_read_bytes:,} and writes {count.global_write_bytes:,} bytes, "
        f"{count.sectors:,} sectors (at best {count.ideal_sectors:,}), {_bank_conflicts(count)}, "
        f"{count.atomics:,} atomics{more} (counts, not times){_not_followed(count)}"
    )


def _bank_conflicts(count: KernelCounts) -> str:
    text = f"{count.bank_conflicts:,} bank conflicts"
    if count.worst_bank_conflict < 2:
        return text
    return f"{text} ({count.worst_bank_conflict}-way at line {count.worst_bank_conflict_line})"


def _not_followed(count: KernelCounts) -> str:
    megabytes = count.not_followed_bytes / 1e6
    return f"; races were not looked for in {megabytes:,.0f} MB of accesses to large tensors" if megabytes else ""


def _ranking(evaluations: Sequence[Evaluation]) -> list[Column]:
    """Accepted submissions to one problem by speedup over eager, then the others, device by device: eager is another
    there. Who has no speedup has no place."""
    devices = list(dict.fromkeys(evaluation.device for evaluation in evaluations))

    def key(evaluation: Evaluation) -> tuple[int, int, float]:
        order = 0 if isinstance(evaluation, Accepted) else 1 if isinstance(evaluation, Rejected) else 2
        return devices.index(evaluation.device), order, -(evaluation.geomean_speedup or 0.0)

    places = dict.fromkeys(devices, 0)
    rows = []
    for evaluation in sorted(evaluations, key=key):
        placed = isinstance(evaluation, Accepted) and evaluation.is_ranked
        places[evaluation.device] += placed
        rows.append(_ranking_cells(evaluation, places[evaluation.device] if placed else None))
    headings = ["#", "submission", "device", "verdict", "over eager [95%]", "over the fastest baseline [95%]"]
    if any(isinstance(evaluation, Accepted) and evaluation.captured for evaluation in evaluations):
        headings += ["captured, over eager", "captured, over the fastest"]
    columns = zip(headings, list(zip(*rows, strict=True))[: len(headings)], strict=True)
    return [Column(heading, cells, "right" if "over" in heading else "left") for heading, cells in columns]


def _ranking_cells(evaluation: Evaluation, place: int | None) -> tuple[Text, ...]:
    status = status_of(evaluation)
    if isinstance(evaluation, Accepted):
        captured = evaluation.captured or Geomeans()
        speedups = [over_eager(evaluation), over_fastest(evaluation), over_eager(captured), over_fastest(captured)]
    else:
        speedups = [evaluation.reason, "", "", ""]
    return (
        Text("–" if place is None else str(place)),
        Text(evaluation.submission),
        Text(evaluation.device),
        Text(status, style=STATUS_STYLE[status]),
        *map(Text, speedups),
    )
