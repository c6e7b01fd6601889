"""The command line: verbs, options, exit codes. Nothing imports this but eval.py."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from harness.errors import HarnessError, UsageError

EXIT_ACCEPTED = 0
EXIT_REJECTED = 1
EXIT_USAGE = 2
EXIT_HARNESS = 3
EXIT_TOO_SLOW = 4
EXIT_NOTHING = 5

EPILOG = """exit codes: 0 accepted; 1 a submission rejected; 2 usage or a broken problem file; 3 the harness or the
device failed and nothing is said about the submission; 4 correct but below --min-speedup; 5 nothing to evaluate"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="eval.py",
        description="Judge and time kernel submissions. 'eval.py list' shows problems, cases and submissions; "
        "'eval.py env' the machine.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="submission files or folders (default: submissions/)",
    )
    parser.add_argument(
        "--problem", help="problem file, or the name of one in problems/ (default: by folder)"
    )
    parser.add_argument("--device", choices=("cuda", "cpu", "emulator"), help="insist on a device")
    parser.add_argument(
        "-k", dest="select", default="", metavar="CASE", help="only cases whose name has this"
    )
    parser.add_argument("--seed", type=int, help="repeat a run's data (default: drawn anew)")
    parser.add_argument("--against", default="eager,compile", metavar="LIST",
                        help="baselines: eager, compile, or other submissions' files (default: %(default)s)")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="shorter timing, wider intervals")
    parser.add_argument("--no-timing", action="store_true", help="verdicts only")
    parser.add_argument("--check", action="store_true", help="emulator: all detectors (slower)")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="S",
                        help="seconds that one call may take (default: %(default)g)")  # fmt: skip
    parser.add_argument("--min-speedup", type=float, metavar="X", help="fail (exit 4) below X over eager")
    parser.add_argument("--json", metavar="FILE", help="write results as JSON; - for standard output")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    parser.add_argument("-q", "--quiet", action="store_true", help="one line for each submission")
    parser.add_argument("-v", "--verbose", action="store_true", help="registers, counts, and what was chosen")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments[:1] in (["list"], ["env"]):
            return _verb(arguments)
        return _evaluate(_parser().parse_args(arguments))
    except UsageError as error:
        return _complain(error, EXIT_USAGE)
    except HarnessError as error:
        return _complain(error, EXIT_HARNESS)
    except Exception:
        path = _keep_traceback()
        return _complain(f"An error of the harness itself; nothing is said about the submission. Report {path}.",
                         EXIT_HARNESS)  # fmt: skip
    except KeyboardInterrupt:
        return _complain("Stopped by the keyboard; what had not finished says nothing.", EXIT_HARNESS)


def _complain(error: object, code: int) -> int:
    print(f"eval.py: {error}", file=sys.stderr)
    return code


def _keep_traceback() -> str:
    """Write the current exception where it can be attached to a report; returns the file's path."""
    with tempfile.NamedTemporaryFile("w", prefix="kernelgate-error-", suffix=".txt", delete=False) as file:
        file.write(traceback.format_exc())
    return file.name


def _console(color: str, *, stderr: bool = False) -> Console:
    force = {"auto": None, "always": True, "never": False}[color]
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 160  # a table in a file or a log should not be folded
    return Console(file=stream, force_terminal=force, no_color=color == "never", width=width, highlight=False)


# ---------------------------------------------------------------------- verbs


def _verb(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog=f"eval.py {arguments[0]}")
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(arguments[1:])
    if arguments[0] == "env":
        return _env(options.json)
    return _list(options.json)


def _env(as_json: bool) -> int:
    import msgspec

    from harness.environment import for_people

    facts = for_people()
    if as_json:
        print(msgspec.json.encode(facts).decode())
        return EXIT_ACCEPTED
    for name, value in facts.items():
        print(f"{name:12s} {'not found' if value is None else value}")
    return EXIT_ACCEPTED


def _list(as_json: bool) -> int:
    import msgspec

    from harness.problem import PROBLEMS, load_problem
    from harness.submission import SUBMISSIONS, find_submissions

    found = []
    for path in sorted(PROBLEMS.glob("*.py")):
        problem = load_problem(path, random_seed=0)
        cases = [{"name": c.name, "shape": c.shape_text, "timed": c.timed} for c in problem.cases]
        files = [
            p.relative_to(SUBMISSIONS).as_posix()
            for p in find_submissions([])
            if p.parent.name == problem.name
        ]
        found.append({"problem": problem.name, "cases": cases, "submissions": files})
    if as_json:
        print(msgspec.json.encode(found).decode())
        return EXIT_ACCEPTED
    for entry in found:
        print(f"problem {entry['problem']}")
        for case in entry["cases"]:
            print(f"  case        {case['name']:30s} {case['shape']}{'  timed' if case['timed'] else ''}")
        for name in entry["submissions"]:
            print(f"  submission  submissions/{name}")
    return EXIT_ACCEPTED


# ---------------------------------------------------------------------- evaluating


def _evaluate(options: argparse.Namespace) -> int:
    from harness.environment import describe
    from harness.submission import find_submissions, read_submission
    from harness.verdict import SCHEMA, Accepted, Evaluation, Results

    if options.min_speedup is not None and options.no_timing:
        raise UsageError("--min-speedup needs times, and --no-timing forbids them; give one of the two.")
    submissions = [read_submission(path) for path in find_submissions(options.paths)]
    if not submissions:
        return _complain("There is no submission here: no .py file was found.", EXIT_NOTHING)
    evaluations: list[Evaluation] = []
    failure: HarnessError | UsageError | None = None
    with _progress(options) as progress:
        try:
            for evaluation in _all_evaluations(submissions, options, progress):
                evaluations.append(evaluation)
        except (HarnessError, UsageError) as error:
            if not evaluations:
                raise
            failure = error  # what was measured before is reported all the same
    results = Results(schema=SCHEMA, environment=describe(), evaluations=evaluations)
    _report(results, options)
    if failure:
        return _complain(failure, EXIT_HARNESS if isinstance(failure, HarnessError) else EXIT_USAGE)
    slow = [e for e in evaluations if isinstance(e, Accepted) and _too_slow(e, options.min_speedup)]
    for evaluation in slow:
        _complain(_why_slow(evaluation, options.min_speedup), EXIT_TOO_SLOW)
    return _exit_code(evaluations, bool(slow))


def _too_slow(evaluation, asked: float | None) -> bool:
    return asked is not None and (evaluation.geomean_speedup is None or evaluation.geomean_speedup < asked)


def _why_slow(evaluation, asked: float) -> str:
    if evaluation.geomean_speedup is None:
        return f"{evaluation.submission} was not timed on {evaluation.device}, so {asked:g}× cannot be shown."
    return f"{evaluation.submission} is correct, and at {evaluation.geomean_speedup:.2f}× below the {asked:g}× asked for."


def _exit_code(evaluations: Sequence, slow: bool) -> int:
    from harness.verdict import Errored, Rejected

    if any(isinstance(e, Rejected) for e in evaluations):
        return EXIT_REJECTED
    if any(isinstance(e, Errored) for e in evaluations):
        return EXIT_HARNESS
    return EXIT_TOO_SLOW if slow else EXIT_ACCEPTED


def _report(results, options: argparse.Namespace) -> None:
    from harness.report import json, terminal

    if options.json == "-":
        sys.stdout.write(json.dumps(results).decode())
        return
    terminal.print_results(_console(options.color), results, quiet=options.quiet, verbose=options.verbose)
    if options.json:
        try:
            Path(options.json).write_bytes(json.dumps(results))
        except OSError as error:
            raise UsageError(f"The results could not be written to {options.json}: {error.strerror}.") from error


@contextlib.contextmanager
def _progress(options: argparse.Namespace) -> Iterator[Callable[[str], None]]:
    """Says what is being done on stderr: a status line on a terminal, lines elsewhere with -v."""
    console = _console(options.color, stderr=True)
    if options.quiet or not (console.is_terminal or options.verbose):
        yield lambda _text: None
    elif console.is_terminal:
        with console.status("starting") as status:
            yield status.update
    else:
        yield console.print


def _all_evaluations(submissions, options: argparse.Namespace, progress: Callable[[str], None]) -> Iterator:
    """One evaluation after the other, grouped so that baselines are loaded once for a problem and device."""
    from harness.device.choose import choose_device, open_device
    from harness.evaluate import Judge, select_cases
    from harness.problem import load_problem
    from harness.settings import Settings, fresh_seed, sub_seed

    seed = fresh_seed() if options.seed is None else options.seed
    groups: dict[tuple[Path, str], list] = {}
    for submission in submissions:
        key = (
            _problem_path(options.problem, submission.path),
            choose_device(options.device, submission.uses_cuda),
        )
        groups.setdefault(key, []).append(submission)
    for (path, device_name), members in groups.items():
        problem = load_problem(path, sub_seed(seed, "shapes") % 2**32)
        cases = select_cases(problem, options.select)
        settings = Settings(
            seed=seed,
            timeout_s=options.timeout,
            quick=options.quick,
            timing=not options.no_timing,
            check=options.check,
        )
        against = [name for name in options.against.split(",") if name]
        device = open_device(device_name)
        with Judge(problem, cases, device, settings, against, progress) as judge:
            for submission in members:
                yield judge.evaluate(submission)


def _problem_path(asked: str | None, submission: Path) -> Path:
    """The problem that was asked for, or the one named like the submission's folder."""
    from harness.problem import PROBLEMS

    if asked is None:
        named = PROBLEMS / f"{submission.parent.name}.py"
        if named.is_file():
            return named
        known = ", ".join(sorted(p.stem for p in PROBLEMS.glob("*.py")))
        raise UsageError(
            f"Which problem is {submission} for? No problem is named like its folder, '{submission.parent.name}'. "
            f"Say --problem with a file or one of: {known}."
        )
    return Path(asked) if asked.endswith(".py") else PROBLEMS / f"{asked}.py"
