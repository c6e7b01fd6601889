"""Results for a person at a terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.text import Text

from harness.notes import DetectorsSilent
from harness.reasons import Reason
from harness.records import KernelCounts
from harness.report.cases import case_columns, counted, has_news, noisy_of, timed_below, timed_of
from harness.report.failures import print_failure, print_printed, print_why, repeat_of
from harness.report.names import told_apart
from harness.report.paragraphs import DEEPER, INDENT, print_paragraph
from harness.report.ranking import ranking, rivals_of, scores
from harness.report.tables import print_columns
from harness.report.verdicts import STATUS_STYLE, accepted_summary, named_in_message
from harness.report.view import View
from harness.report.words import as_sentences, conditions, unfinished
from harness.verdict import Accepted, CasePassed, Errored, Evaluation, Rejected, Results, status_of

# Reasons that the emulator's detectors name the place of, where they have not been asked yet.
HINTED = {Reason.CRASHED, Reason.OUT_OF_BOUNDS}

UNDETECTED = "on the emulator without its detectors, a race may not show"

HINT = "--check also looks for races, barriers left out and uninitialised reads"


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
    results = msgspec.structs.replace(results, evaluations=told_apart(results.evaluations, view.files))
    for evaluation in results.evaluations:
        _print_evaluation(console, evaluation, view, alone=len(results.evaluations) == 1)
    if results.unfinished:
        print_paragraph(console, Text(), f"Stopped before its end: {unfinished(results)}")
    if not view.quiet:
        if view.ranks:
            _print_rankings(console, results.evaluations)
        for line in scores(results.evaluations):
            print_paragraph(console, Text(), line)
        _print_isolation(console, results, view.verbose)
        _print_unwatched(console, results)
        _print_undetected(console, results, view)
    return page.getvalue()


def _print_evaluation(console: Console, evaluation: Evaluation, view: View, *, alone: bool) -> None:
    """Of several evaluations cases that only passed are counted, unless all are asked for: what is timed or failed
    would drown in them."""
    told = not view.quiet and not evaluation.kept_from
    if told and not isinstance(evaluation, Accepted):
        _print_refused(console, evaluation, view)
        return
    has_title = False
    if told:
        has_title = _print_cases(console, evaluation, verbose=view.verbose, brief=not alone and not view.verbose)
        print_printed(console, evaluation.printed)
    _print_verdict(console, evaluation, names_problem=not has_title)


def _print_refused(console: Console, evaluation: Rejected | Errored, view: View) -> None:
    """The verdict first: who has made a mistake reads what it is, and the rest where that is not enough."""
    print_failure(console, evaluation)
    for text in as_sentences(evaluation.notes):
        print_paragraph(console, Text(INDENT), f"note: {text}")
    _print_repeat(console, evaluation)
    if not view.checked and _was_not_looked_at(evaluation):
        print_paragraph(console, Text(INDENT), f"hint: {HINT}", "dim")
    if view.verbose:
        _print_cases(console, evaluation, verbose=True, brief=False)


def _print_rankings(console: Console, evaluations: Sequence[Evaluation]) -> None:
    for problem, rivals in rivals_of(evaluations):
        what = "Ranking" if any(e.geomean_speedup is not None for e in rivals) else "Verdicts"
        print_columns(console, f"{what} · {problem}", ranking(rivals))


def _print_isolation(console: Console, results: Results, verbose: bool) -> None:
    """Where somebody asks, and where something was accepted that a stronger isolation would have kept from more."""
    accepted = {evaluation.device for evaluation in results.evaluations if isinstance(evaluation, Accepted)}
    for device, described in results.environment.get("isolation", {}).items():
        if verbose or (described["lacks"] and device in accepted):
            parts = f": {', '.join(described['contains'])}" if verbose else ""
            lacks = f" ({described['lacks']})" if described["lacks"] else ""
            print_paragraph(console, Text(), f"isolation on {device}: {described['level']}{lacks}{parts}", "dim")


def _print_unwatched(console: Console, results: Results) -> None:
    """That nobody saw in which state the GPU was, where something was timed on it."""
    why = results.environment.get("unwatched")
    if why and any(evaluation.device == "cuda" and timed_of(evaluation.cases) for evaluation in results.evaluations):
        print_paragraph(console, Text(), why, "dim")


def _print_undetected(console: Console, results: Results, view: View) -> None:
    """What nobody has looked for in kernels that were accepted on the emulator."""
    on_emulator = (e for e in results.evaluations if e.device == "emulator" and isinstance(e, Accepted) and e.build)
    if not view.checked and any(not evaluation.kept_from for evaluation in on_emulator):
        print_paragraph(console, Text(), f"{UNDETECTED}; {HINT}", "dim")


def verdict_line(evaluation: Evaluation, *, names_problem: bool = False) -> Text:
    """What became of a submission. Only a message of several lines makes it more than one."""
    head, said = _verdict(evaluation, names_problem)
    # A submission's own words may hold line ends: no line of theirs may look like one of ours.
    return head.append(said.replace("\n", f"\n{DEEPER}"))


def _verdict(evaluation: Evaluation, names_problem: bool) -> tuple[Text, str]:
    """The status, and what follows it."""
    status = status_of(evaluation)
    name = f"{evaluation.problem} · {evaluation.submission}" if names_problem else evaluation.submission
    if isinstance(evaluation, Accepted):
        said = accepted_summary(evaluation)
    else:
        said = f"{evaluation.reason}: {evaluation.message}"
    return Text.assemble((status.upper(), STATUS_STYLE[status])), f"  {name}  {said}"


def _print_verdict(console: Console, evaluation: Evaluation, *, names_problem: bool) -> None:
    head, said = _verdict(evaluation, names_problem)
    kept = f"; judged {evaluation.kept_from[:10]}, --again judges it anew" if evaluation.kept_from else ""
    print_paragraph(console, head, said + kept)
    if isinstance(evaluation, Accepted):
        _print_notes(console, evaluation)
        return
    print_why(console, evaluation)
    _print_notes(console, evaluation)
    _print_repeat(console, evaluation)


def _print_repeat(console: Console, evaluation: Rejected | Errored) -> None:
    if repeat := repeat_of(evaluation):
        console.print(Text(f"  repeat: {repeat}", style="cyan"), soft_wrap=True)


def _print_notes(console: Console, evaluation: Evaluation) -> None:
    for text in as_sentences(evaluation.notes):
        print_paragraph(console, Text(INDENT), f"note: {text}", "dim")


def _was_not_looked_at(evaluation: Evaluation) -> bool:
    """Whether a case was rejected on the emulator for what all detectors would name, and they did not watch."""
    failed = named_in_message(evaluation) if isinstance(evaluation, Rejected) else None
    looked = evaluation.finding or any(isinstance(note, DetectorsSilent) for note in evaluation.notes)
    return bool(failed) and evaluation.device == "emulator" and evaluation.reason in HINTED and not looked


def _print_cases(console: Console, evaluation: Evaluation, *, verbose: bool, brief: bool) -> bool:
    """Whether there was anything to print, below a title that names the problem."""
    shown = [case for case in evaluation.cases if not brief or has_news(case)]
    if not shown:
        return False
    title = " · ".join((evaluation.problem, evaluation.submission, evaluation.device, f"seed {evaluation.seed}"))
    print_columns(console, title, case_columns(shown, noisy_of(evaluation)))
    if left_out := [case for case in evaluation.cases if brief and not has_news(case)]:
        console.print(Text(f"{counted(left_out)}; -v shows them", style="dim"))
    _print_versions(console, timed_of(evaluation.cases))
    _print_build(console, evaluation, verbose)
    if verbose:
        _print_conditions(console, timed_of(evaluation.cases))
        _print_counts(console, evaluation)
    return True


def _print_versions(console: Console, timed: list[CasePassed]) -> None:
    found = {name: b.version for case in timed if case.timing for name, b in case.timing.baselines.items() if b.version}
    if found:
        print_paragraph(console, Text(), "; ".join(f"{name}: {version}" for name, version in found.items()), "dim")


def _print_build(console: Console, evaluation: Evaluation, verbose: bool) -> None:
    build = evaluation.build
    if build is None:
        return
    how = "from the cache" if build.cached else f"in {build.seconds:.1f} s"
    spilling = [kernel for kernel in build.kernels if kernel.spilled_bytes]
    spills = f"; {len(spilling)} kernel{'s spill' if len(spilling) > 1 else ' spills'} registers" if spilling else ""
    console.print(Text(f"built {how}{spills}", style="dim"))
    for kernel in build.kernels if verbose else spilling:
        needs = (
            f"{kernel.registers} registers, {kernel.shared_bytes:,} bytes of shared memory, "
            f"{kernel.spilled_bytes} bytes spilled"
        )
        print_paragraph(console, Text(INDENT), f"{kernel.kernel}: {needs}", "dim")


def _print_conditions(console: Console, timed: list[CasePassed]) -> None:
    """In which state a GPU was while each case was timed."""
    for case in timed:
        for below, timing in [("", case.timing), *timed_below(case)]:
            if timing and timing.conditions:
                name = f"{case.name}, {below}" if below else case.name
                print_paragraph(console, Text(INDENT), f"{name}: {conditions(timing.conditions)}", "dim")


def _print_counts(console: Console, evaluation: Evaluation) -> None:
    for case in evaluation.cases:
        for count in case.counts if isinstance(case, CasePassed) else ():
            print_paragraph(console, Text(INDENT), f"{case.name}, {count.kernel}: {_counted_words(count)}", "dim")


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
    shown = f"{megabytes:,.0f}" if megabytes >= 10 else f"{max(megabytes, 0.01):.2f}"
    where = "to large tensors, or after a million flags"
    return f"; races were not looked for in {shown} MB of accesses: {where}" if megabytes else ""
