"""The command line: parse, plan, run, report, exit code. Nothing imports this but eval.py."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from harness import crash, exits, process
from harness.errors import INTERRUPTED, HarnessError, UsageError, name_of
from harness.events import OnEvent
from harness.exits import Exit
from harness.options import Judge, Output, parse
from harness.paths import shown_path
from harness.plan import RunPlan, make_plan
from harness.report import formats, writing
from harness.report.board import print_boards
from harness.report.paragraphs import wrapped
from harness.report.progress import announced, listening
from harness.report.view import View, console
from harness.report.workflow import no_commands, would_command
from harness.run import RunStopped
from harness.shares import most_gpus, run_side_by_side, usual_jobs
from harness.storage import cache
from harness.storage.disk import full_is_said
from harness.store import Keeper, texts_of
from harness.store.answers import in_order, known, without
from harness.verdict import Results


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    process.prepare()
    try:
        with full_is_said():
            asked = parse(sys.argv[1:] if argv is None else argv)
            match asked:
                case int():
                    code = asked
                case Judge():
                    code = _judge(asked)
                case _:
                    code = asked()
            sys.stdout.flush()  # here, where it is said what is wrong with it
        return code
    except (UsageError, HarnessError) as error:
        return _complain(error, exits.of_error(error))
    except BrokenPipeError:  # whoever read standard output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.HARNESS
    except Exception:
        return _complain(crash.report(), Exit.HARNESS)
    except KeyboardInterrupt:
        return _complain(INTERRUPTED, Exit.HARNESS)


def _judge(asked: Judge) -> Exit:
    output, min_speedup = asked.output, asked.arguments.min_speedup
    writing.require_writable(output.reports)
    with cache.in_use():
        plan = make_plan(asked.arguments)
        if not plan.groups:
            beside = " beside the problem's own" if asked.arguments.problem else ""
            where = ", ".join(map(str, asked.arguments.paths)) or "submissions/"
            if plan.notices:
                why = "\n".join(map(announced, plan.notices))
                return _complain(f"No submission in {where} is judged.\n{why}", Exit.NOTHING)
            return _complain(f"There is no submission in {where}: no .py file was found{beside}.", Exit.NOTHING)
        answered = known(output.db, plan) if asked.may_answer and output.db else []
        results, cause, not_kept = _run(without(plan, answered), asked)
        evaluations = in_order(plan, [*answered, *results.evaluations])
        unfinished = sum(len(group.submissions) for group in plan.groups) - len(evaluations) if cause else 0
        results = msgspec.structs.replace(results, evaluations=evaluations, unfinished=unfinished)
        _report(results, plan, asked, shows_boards=asked.shows_boards and not not_kept)
    if not_kept:
        _complain(not_kept, Exit.ACCEPTED)
    if cause:
        return _complain(cause, exits.of_error(cause))
    code = exits.of_results(results.evaluations, min_speedup)
    for why in exits.why_not_fast(results.evaluations, min_speedup):
        _complain(why, code)
    return code


def _run(plan: RunPlan, asked: Judge) -> tuple[Results, UsageError | HarnessError | None, str]:
    """The results, what ended the run before its end, if anything did, and why they are not kept, if they are not."""
    output = asked.output
    view = View(quiet=output.quiet, verbose=output.verbose)
    # Standard output has reports alone: what a problem's file prints goes beside them.
    beside = contextlib.redirect_stdout(sys.stderr)
    jobs = 0 if asked.arguments.cluster else asked.jobs or usual_jobs(plan)
    gpus = min(most_gpus(plan), jobs) if jobs else 0
    with no_commands(sys.stderr), beside, listening(console(sys.stderr, output.color), view, gpus) as tell:
        keeper = Keeper(output.db, plan, tell) if output.db else None
        try:
            results, cause = _judged(plan, asked, jobs, keeper or tell), None
        except RunStopped as stopped:
            results, cause = stopped.results, stopped.cause
    return results, cause, keeper.failure if keeper else ""


def _judged(plan: RunPlan, asked: Judge, jobs: int, tell: OnEvent) -> Results:
    if jobs:
        return run_side_by_side(plan, jobs, tell)
    from harness import cluster

    return cluster.run(plan, asked.arguments, tell)


def _report(results: Results, plan: RunPlan, asked: Judge, *, shows_boards: bool) -> None:
    """Write every report that was asked for. The terminal's goes to standard output unless another does. Raises
    UsageError for files that could not be written, when all else is."""
    output = asked.output
    texts = texts_of(plan) if output.reports else {}
    view = View(output.quiet, output.verbose, plan.settings.check, texts=texts, files=_files_of(plan))
    environment = _environment() if output.reports and not asked.arguments.cluster else {}  # a cluster's is there
    failed = writing.write(output.reports, results, environment, view)
    if not writing.go_to_stdout(output.reports):
        boards_of = output.db if shows_boards else None
        view = replace(_view_of_stdout(plan, output), ranks=boards_of is None, files=_files_of(plan))
        with no_commands(sys.stdout):
            sys.stdout.write(formats.find("terminal").render(results, view))
            if boards_of is not None:
                problems = {(name_of(group.problem), group.device) for group in plan.groups}
                print_boards(console(sys.stdout, output.color), boards_of, problems)
    if failed:
        raise UsageError(" ".join(failed))


def _files_of(plan: RunPlan) -> dict[tuple[str, str], str]:
    submissions = [submission for group in plan.groups for submission in group.submissions]
    return {(submission.name, submission.sha256): shown_path(submission.path) for submission in submissions}


def _view_of_stdout(plan: RunPlan, output: Output) -> View:
    shown = console(sys.stdout, output.color)
    colored = shown.color_system is not None and not shown.no_color  # a terminal may have no colours
    return View(output.quiet, output.verbose, plan.settings.check, shown.width, colored)


def _environment() -> dict[str, Any]:
    from harness.environment import describe

    return describe()


def _complain(error: object, code: Exit) -> Exit:
    width = console(sys.stderr, "never").width
    text = "\n".join(part for line in f"eval.py: {error}".splitlines() for part in wrapped(line, width))
    quietened = no_commands(sys.stderr) if would_command(text) else contextlib.nullcontext()
    with contextlib.suppress(OSError), quietened:  # the code says it, too
        print(text, file=sys.stderr)
    return code
