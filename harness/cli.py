"""The command line: verbs, options, exit codes. Nothing imports this but eval.py."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from harness import against
from harness.errors import HarnessError, JudgeFailed, SubmissionError, UsageError
from harness.isolation.levels import ASKED, Isolation, choose_isolation, protect_judge
from harness.paths import PROBLEMS, SUBMISSIONS, judge_cache
from harness.reasons import Reason
from harness.settings import Settings, fresh_seed, sub_seed
from harness.storage import cache
from harness.storage.disk import full_is_said
from harness.submission import Submission, find_submissions, read_submission
from harness.verdict import SCHEMA, Accepted, Errored, Evaluation, Rejected, Results

if TYPE_CHECKING:
    from harness.evaluate import Judge

EXIT_ACCEPTED = 0
EXIT_REJECTED = 1
EXIT_USAGE = 2
EXIT_HARNESS = 3
EXIT_TOO_SLOW = 4
EXIT_NOTHING = 5

STOPPED = "Stopped by the keyboard; what had not finished says nothing."

EPILOG = """exit codes: 0 accepted; 1 a submission rejected; 2 usage or a broken problem file; 3 the harness or the
device failed and nothing is said about the submission; 4 correct but below --min-speedup; 5 nothing to evaluate"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="eval.py",
        description="Judge and time kernel submissions. 'eval.py list' shows problems, cases and submissions; "
        "'eval.py env' the machine, 'eval.py profile --help' where the time of one case goes.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="submission files or folders (default: submissions/)",
    )
    parser.add_argument("--problem", help="problem file, or the name of one in problems/ (default: by folder)")
    parser.add_argument("--device", choices=("cuda", "cpu", "emulator"), help="insist on a device")
    parser.add_argument("-k", dest="select", default="", metavar="CASE", help="only cases whose name has this")
    parser.add_argument("--seed", type=int, help="repeat a run's data (default: drawn anew)")
    parser.add_argument("--against", metavar="LIST",
                        help="baselines: eager, compile, unfused, liger, apex, cudnn, quack, or submission files "
                        f"(default: {against.USUAL}; with --quick {against.QUICK})")  # fmt: skip
    parser.add_argument("-x", "--first-failure", action="store_true", help="stop a submission at its first failed case")
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", dest="effort", action="store_const", const="quick", default="usual",
                        help="fewer rounds, against eager alone; without -k only of the first timed case")  # fmt: skip
    effort.add_argument("--thorough", dest="effort", action="store_const", const="thorough",
                        help="up to 5 s a case on a GPU and 20 s on a CPU, narrower intervals")  # fmt: skip
    parser.add_argument("--device-time", action="store_true", help="also the GPU's own time of every timed call")
    parser.add_argument("--no-timing", action="store_true", help="verdicts only")
    parser.add_argument("--check", action="store_true", help="emulator: all detectors (slower)")
    parser.add_argument("--sanitize", action="store_true",
                        help="then run compute-sanitizer over the cases (needs a GPU)")  # fmt: skip
    parser.add_argument("--timeout", type=float, default=60.0, metavar="S",
                        help="seconds that one call may take (default: %(default)g)")  # fmt: skip
    parser.add_argument("--isolation", choices=ASKED, default="auto",
                        help="auto: the strongest that works here; require: fail without namespaces")  # fmt: skip
    parser.add_argument("--min-speedup", type=float, metavar="X", help="fail (exit 4) below X over eager")
    parser.add_argument("--json", metavar="FILE", help="write results as JSON; - for standard output")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    parser.add_argument("-q", "--quiet", action="store_true", help="one line for each submission")
    parser.add_argument("-v", "--verbose", action="store_true",
                        help="every case of several submissions, registers, counts, and what was chosen")  # fmt: skip
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Read when torch is loaded: threads of the judge that have nothing to do must not spin beside what is timed.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # A reference may load torch's compiler, which makes itself a folder: not among temporary files.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(judge_cache()))
    # Some start what they run with this ignored, and how a worker ended would then be nobody's to know.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    protect_judge()
    try:
        with full_is_said():
            code = _run(arguments)
            sys.stdout.flush()  # here, where it is said what is wrong with it
        return code
    except UsageError as error:
        return _complain(error, EXIT_USAGE)
    except HarnessError as error:
        return _complain(error, EXIT_HARNESS)
    except BrokenPipeError:  # whoever read standard output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_HARNESS
    except Exception:
        return _complain(_of_the_harness(), EXIT_HARNESS)
    except KeyboardInterrupt:
        return _complain(STOPPED, EXIT_HARNESS)


def _run(arguments: list[str]) -> int:
    if arguments[:1] in (["list"], ["env"]):
        return _verb(arguments[0], arguments[1:])
    with cache.in_use():
        if arguments[:1] == ["profile"]:
            return _profile(arguments[1:])
        return _evaluate(_parsed(_parser(), arguments))


def _parsed(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """As `parse_args`, but it says which option an unknown one may have been."""
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        known = [option for action in parser._actions for option in action.option_strings]
        words = [word.split("=")[0] for word in unknown if word.startswith("--")]
        meant = [close for word in words for close in difflib.get_close_matches(word, known, n=1)]
        hint = f"; did you mean {' '.join(meant)}?" if meant else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return options


def _complain(error: object, code: int) -> int:
    with contextlib.suppress(OSError):  # the code says it, too
        print(f"eval.py: {error}", file=sys.stderr)
    return code


def _of_the_harness() -> str:
    """What is said about the current exception, which nobody foresaw. Its traceback goes to a file."""
    try:
        with tempfile.NamedTemporaryFile("w", prefix="kernelgate-error-", suffix=".txt", delete=False) as file:
            file.write(traceback.format_exc())
        report = f"Report {file.name}."
    except OSError as error:
        last = traceback.format_exc().strip().splitlines()[-1]
        report = f"Report '{last}'; a file with more could not be written: {error.strerror}."
    return f"An error of the harness itself; nothing is said about the submission. {report}"


def _console(color: str, *, stderr: bool = False) -> Console:
    force = {"auto": None, "always": True, "never": False}[color]
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 160  # a table in a file or a log should not be folded
    return Console(file=stream, force_terminal=force, no_color=color == "never", width=width, highlight=False)


# ---------------------------------------------------------------------- verbs


def _verb(verb: str, arguments: Sequence[str]) -> int:
    options = _parsed(_verb_parser(verb), arguments)
    if verb == "env":
        return _env(options.json)
    paths = [_named_problem(asked) for asked in options.problems] or sorted(PROBLEMS.glob("*.py"))
    return _list(paths, options.json)


def _verb_parser(verb: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"eval.py {verb}")
    parser.add_argument("--json", action="store_true", help="as JSON")
    if verb == "list":
        parser.add_argument("problems", nargs="*", metavar="PROBLEM", help="a file, or a name (default: all)")
    return parser


def _env(as_json: bool) -> int:
    import msgspec

    from harness.environment import for_people

    facts = for_people()
    if as_json:
        print(msgspec.json.encode(facts).decode())
        return EXIT_ACCEPTED
    for name, value in facts.items():
        print(f"{name:16s} {'not found' if value is None else value}")
    return EXIT_ACCEPTED


def _list(paths: Sequence[Path], as_json: bool) -> int:
    """Problems with their cases, and the submissions that ship for them."""
    import msgspec

    from harness.problem import load_problem

    found: list[dict[str, Any]] = []
    for path in paths:
        problem = load_problem(path, random_seed=0)
        cases = [{"name": c.name, "shape": c.shape_text, "timed": c.timed} for c in problem.cases]
        files = [p.relative_to(SUBMISSIONS).as_posix() for p in find_submissions([]) if p.parent.name == problem.name]
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


# ---------------------------------------------------------------------- profiling


def _profile_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="eval.py profile",
        description="Run one case of a submission under Nsight Compute, or where it cannot look under "
        "torch.profiler. The submission runs as a program of yours, without the judge's isolation.",
    )
    parser.add_argument("path", type=Path, metavar="SUBMISSION")
    parser.add_argument("--problem", help="problem file, or the name of one in problems/ (default: by folder)")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="insist on a device")
    parser.add_argument("-k", dest="select", default="", metavar="CASE", help="the first case whose name has this "
                        "(default: the first timed one)")  # fmt: skip
    parser.add_argument("--seed", type=int, help="repeat a run's data (default: drawn anew)")
    parser.add_argument("--out", type=Path, metavar="FILE",
                        help="where the full report goes (default: beside you, NAME-CASE.ncu-rep)")  # fmt: skip
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    return parser


def _profile(arguments: Sequence[str]) -> int:
    options = _parsed(_profile_parser(), arguments)
    submission = read_submission(options.path)
    problem_path = _problem_path(options.problem, submission.path)
    from harness.device.choose import choose_device

    device = choose_device(options.device, submission.uses_cuda)
    if device == "emulator":
        raise HarnessError(
            "There is no GPU here, and an emulation's times mean nothing. For counts of bytes, sectors and bank "
            f"conflicts: eval.py {options.path} --device emulator --check -v"
        )
    from harness.evaluate import select_cases
    from harness.problem import load_problem
    from harness.report.profile import print_profile
    from harness.tools.profiling import profile

    seed = fresh_seed() if options.seed is None else options.seed
    problem = load_problem(problem_path, sub_seed(seed, "shapes") % 2**32)
    chosen = select_cases(problem, options.select)
    case = chosen[0] if options.select else next((case for case in chosen if case.timed), chosen[0])
    shown = case.on(device)
    name = re.sub(r"[^0-9A-Za-z]+", "-", f"{submission.name}-{case.name}").strip("-")
    report = (options.out or Path(f"{name}.ncu-rep")).resolve()
    try:
        print_profile(_console(options.color), profile(submission, problem, shown, device, seed, report))
    except SubmissionError as error:
        return _complain(f"{submission.name} cannot be profiled: {error.message}", EXIT_REJECTED)
    return EXIT_ACCEPTED


# ---------------------------------------------------------------------- evaluating


def _evaluate(options: argparse.Namespace) -> int:
    usual = against.QUICK if options.effort == "quick" else against.USUAL
    options.asked_against = options.against is not None
    options.against = against.read(usual if options.against is None else options.against)
    _refuse_what_cannot_be(options)
    asked = None if options.problem is None else _named_problem(options.problem)
    submissions = [read_submission(path) for path in find_submissions(options.paths, asked)]
    if not submissions:
        beside = " beside the problem's own" if asked else ""
        return _complain(f"There is no submission here: no .py file was found{beside}.", EXIT_NOTHING)
    evaluations: list[Evaluation] = []
    isolation: dict[str, Isolation] = {}
    failure: HarnessError | UsageError | None = None
    with _progress(options) as progress:
        try:
            with full_is_said():
                for evaluation in _all_evaluations(submissions, options, isolation, progress):
                    evaluations.append(evaluation)
                    _announce(evaluation, len(evaluations), len(submissions), options)
        except (HarnessError, UsageError, KeyboardInterrupt) as error:
            if not evaluations:
                raise
            # What was measured before is reported all the same.
            failure = HarnessError(STOPPED) if isinstance(error, KeyboardInterrupt) else error
    from harness.environment import describe

    environment = describe() if options.json else {}
    environment["isolation"] = {device: chosen.describe() for device, chosen in isolation.items()}
    results = Results(schema=SCHEMA, environment=environment, evaluations=evaluations)
    _report(results, options)
    if failure:
        return _complain(failure, EXIT_HARNESS if isinstance(failure, HarnessError) else EXIT_USAGE)
    slow = [e for e in evaluations if isinstance(e, Accepted) and _too_slow(e, options.min_speedup)]
    for evaluation in slow:
        _complain(_why_slow(evaluation, options.min_speedup), EXIT_TOO_SLOW)
    return _exit_code(evaluations, bool(slow))


def _refuse_what_cannot_be(options: argparse.Namespace) -> None:
    """Raises UsageError for what would only fail after minutes of judging."""
    if options.min_speedup is not None and options.no_timing:
        raise UsageError("--min-speedup needs times, and --no-timing forbids them; give one of the two.")
    if options.min_speedup is not None and "eager" not in options.against:
        raise UsageError("--min-speedup is over eager, which --against leaves out; add eager to --against.")
    if not options.timeout > 0:  # nor what is no number
        raise UsageError(f"--timeout must be more than 0 seconds, and {options.timeout:g} was given.")
    if options.json and options.json != "-":
        _require_writable(Path(options.json))


def _require_writable(path: Path) -> None:
    """Raises UsageError where results could not be written to `path`. What is there already is left as it is."""
    folder = path.absolute().parent
    if path.is_dir():
        raise UsageError(f"--json takes a file, and {path} is a folder; name a file in it.")
    if not folder.is_dir():
        raise UsageError(f"--json {path} cannot be written: there is no folder {folder}. Make it, or name another.")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UsageError(f"--json {path} cannot be written: you may not write there. Name another file.")


def _too_slow(evaluation: Accepted, asked: float | None) -> bool:
    return asked is not None and (evaluation.geomean_speedup is None or evaluation.geomean_speedup < asked)


def _why_slow(evaluation: Accepted, asked: float) -> str:
    if evaluation.geomean_speedup is None:
        why = evaluation.not_timed or "eager was not timed on every timed case, as the notes say"
        return f"{evaluation.submission} is correct, and {asked:g}× cannot be shown: {why}."
    return (
        f"{evaluation.submission} is correct, and at {evaluation.geomean_speedup:.2f}× below the {asked:g}× asked for."
    )


def _exit_code(evaluations: Sequence[Evaluation], slow: bool) -> int:
    if any(isinstance(e, Rejected) for e in evaluations):
        return EXIT_REJECTED
    if any(isinstance(e, Errored) for e in evaluations):
        return EXIT_HARNESS
    return EXIT_TOO_SLOW if slow else EXIT_ACCEPTED


def _report(results: Results, options: argparse.Namespace) -> None:
    from harness.report import json, terminal

    if options.json == "-":
        sys.stdout.write(json.dumps(results).decode())
        return
    problem = _write(Path(options.json), json.dumps(results)) if options.json else ""
    console = _console(options.color)
    terminal.print_results(console, results, check=options.check, quiet=options.quiet, verbose=options.verbose)
    if problem:
        raise UsageError(problem)


def _write(path: Path, data: bytes) -> str:
    """Write a file; returns a sentence when that fails."""
    try:
        path.write_bytes(data)
    except OSError as error:
        return f"The results could not be written to {path}: {error.strerror}. They stand above."
    return ""


@contextlib.contextmanager
def _progress(options: argparse.Namespace) -> Iterator[Callable[[str], None]]:
    """Says what is being done on stderr: a status line on a terminal, lines elsewhere with -v."""
    console = _console(options.color, stderr=True)
    started = time.monotonic()
    if options.quiet or not (console.is_terminal or options.verbose):
        yield lambda _text: None
    elif console.is_terminal:
        with console.status("starting") as status:
            yield status.update
    else:
        yield lambda text: console.print(f"{time.monotonic() - started:7.2f} s  {text}")


def _notice(options: argparse.Namespace, text: str) -> None:
    """A line on stderr ahead of what it is about: what takes long, or does nothing."""
    if not options.quiet:
        _console(options.color, stderr=True).print(text, highlight=False)


def _announce(evaluation: Evaluation, position: int, count: int, options: argparse.Namespace) -> None:
    """A line of a log for one of several submissions as soon as it is judged: the report comes when all are."""
    console = _console(options.color, stderr=True)
    if options.quiet or console.is_terminal or count == 1:
        return
    from harness.report.terminal import verdict_line

    first, *_ = verdict_line(evaluation).split()
    console.print(Text(f"{position} of {count}: ").append_text(first), soft_wrap=True)


def _all_evaluations(
    submissions: Sequence[Submission],
    options: argparse.Namespace,
    isolation: dict[str, Isolation],
    progress: Callable[[str], None],
) -> Iterator[Evaluation]:
    """One evaluation after the other, grouped so that baselines are loaded once for a problem and device. What
    workers are started with is put into `isolation`, by device, before the first of them."""
    from harness.device.choose import choose_device

    seed = fresh_seed() if options.seed is None else options.seed
    settings = Settings(
        seed=seed,
        timeout_s=options.timeout,
        effort=options.effort,
        one_timed_case=options.effort == "quick" and not options.select,
        timing=not options.no_timing,
        check=options.check,
        first_failure=options.first_failure,
        device_time=options.device_time,
    )
    groups: dict[tuple[Path, str], list[Submission]] = {}
    for submission in submissions:
        device = choose_device(options.device, submission.uses_cuda)
        if options.sanitize:
            _require_sanitizer(device)
        if device not in isolation:
            isolation[device] = choose_isolation(options.isolation, device)
            for sentence in _without_effect(options, device):
                _notice(options, sentence)
        groups.setdefault((_problem_path(options.problem, submission.path), device), []).append(submission)
    for (problem, device), members in groups.items():
        yield from _group(problem, device, members, options, settings, isolation[device], progress)


def _without_effect(options: argparse.Namespace, device: str) -> Iterator[str]:
    """Sentences about options that do nothing on `device`."""
    of_times = {
        "--quick": options.effort == "quick",
        "--thorough": options.effort == "thorough",
        "--against": options.asked_against,
        "--device-time": options.device_time,
    }
    idle = [name for name, given in of_times.items() if given and (device == "emulator" or options.no_timing)]
    if idle:
        why = "the emulator gives verdicts and no times" if device == "emulator" else "--no-timing times nothing"
        yield f"Without effect: {', '.join(idle)}, since {why}."
    elif options.device_time and device == "cpu":
        yield "Without effect: --device-time, which asks a GPU, and this run is on cpu."
    if options.check and device != "emulator":
        instead = "--sanitize looks for such defects there" if device == "cuda" else "it has nothing to look at there"
        yield f"Without effect: --check, which is the emulator's, and this run is on {device}; {instead}."


def _require_sanitizer(device: str) -> None:
    from harness.tools.sanitizing import require_tool

    require_tool()
    if device != "cuda":
        raise HarnessError(
            f"--sanitize watches kernels on a GPU, and this run is on {device}. Use --device cuda, or "
            "--device emulator --check, which looks for the same defects."
        )


def _group(
    path: Path,
    device_name: str,
    members: Sequence[Submission],
    options: argparse.Namespace,
    settings: Settings,
    isolation: Isolation,
    progress: Callable[[str], None],
) -> Iterator[Evaluation]:
    """The evaluations of one problem's submissions on one device."""
    from harness.device.choose import can_time, open_device, prepare_device
    from harness.device.memory_file import MemoryFile
    from harness.isolation.starter import Starter

    prepare_device(device_name, check=settings.check, notice=partial(_notice, options))
    memory = MemoryFile()
    starter = Starter(device_name, memory.fd, isolation, [path])
    try:
        # Workers load torch while this process does: the imports below take seconds.
        timed = settings.timing and can_time(device_name)
        names = options.against if timed else []
        compilers = names.count("compile")
        starter.start_ahead(workers=1 + (1 + len(names) - compilers if timed else 0), compilers=compilers)
        progress(f"loading {path.stem} on {device_name}")
        from harness.evaluate import Judge, select_cases
        from harness.problem import load_problem
        from harness.tools.sanitizing import sanitized

        problem = load_problem(path, sub_seed(settings.seed, "shapes") % 2**32)
        cases = select_cases(problem, options.select)
        device = open_device(device_name, memory)
        waiting = list(members)
        while waiting:  # after an error of the harness the others are judged with baselines of their own
            with Judge(problem, cases, device, starter, settings, names, progress) as judge:
                sound = True
                while waiting and sound:
                    submission = waiting.pop(0)
                    # Beside timed calls nothing is started, nor what another submission could reach before it is used.
                    if waiting and not timed and not starter.forks:
                        starter.start_ahead(workers=1, compilers=0)
                    evaluation, sound = _contained(judge, submission, settings, problem.name, device_name)
                    if options.sanitize and isinstance(evaluation, Accepted):
                        evaluation = sanitized(evaluation, submission, problem, cases, device_name, progress)
                    yield evaluation
    finally:
        starter.end()


def _contained(
    judge: Judge, submission: Submission, settings: Settings, problem: str, device: str
) -> tuple[Evaluation, bool]:
    """An evaluation, and whether the judge can go on: an error of the harness itself costs the others nothing."""
    try:
        with full_is_said():
            return judge.evaluate(submission), True
    except (HarnessError, UsageError):
        raise
    except Exception as error:
        evaluation = Errored(
            reason=Reason.HARNESS_ERROR,
            message=f"{error} Run it again." if isinstance(error, JudgeFailed) else _of_the_harness(),
            problem=problem,
            submission=submission.name,
            source_sha256=submission.sha256,
            device=device,
            seed=settings.seed,
            effort=settings.effort,
            cases=[],
        )
        return evaluation, False


def _problem_path(asked: str | None, submission: Path) -> Path:
    """The problem that was asked for, or the one named like the submission's folder."""
    if asked is None:
        named = PROBLEMS / f"{submission.parent.name}.py"
        if named.is_file():
            return named
        known = ", ".join(sorted(p.stem for p in PROBLEMS.glob("*.py")))
        raise UsageError(
            f"Which problem is {submission} for? No problem is named like its folder, '{submission.parent.name}'. "
            f"Say --problem with a file or one of: {known}."
        )
    return _named_problem(asked)


def _named_problem(asked: str) -> Path:
    return Path(asked).resolve() if asked.endswith(".py") else PROBLEMS / f"{asked}.py"
