"""What can be said on the command line: the options of judging, and the verbs beside it."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections import ChainMap
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import click

from harness import against, verbs
from harness.errors import UsageError
from harness.exits import Exit
from harness.paths import results_db
from harness.plan import Arguments
from harness.report import formats, writing
from harness.report.view import Color
from harness.settings import DTYPE_NAMES
from harness.verbs.shared.choosing import chooses_cases, chooses_isolation
from harness.verbs.shared.completion import problems_like, verbs_or_files
from harness.version import judge_version

PROGRAM = "eval.py"


@dataclass(frozen=True)
class Output:
    """What is reported where: the terminal's report on standard output, unless one of `reports` goes there."""

    reports: writing.Reports = ()
    color: Color = "auto"
    quiet: bool = False
    verbose: bool = False
    db: Path | None = None
    """The database that evaluations go to; None keeps none."""


@dataclass(frozen=True)
class Judge:
    """The command line asks for submissions to be judged."""

    arguments: Arguments
    output: Output
    jobs: int | None = None
    """How many processes judge side by side; None for what is usual here."""
    may_answer: bool = False
    """Whether what the store has a verdict on is not judged anew."""

    @property
    def shows_boards(self) -> bool:
        """Whether the boards follow: where everything was asked for, and is kept."""
        return not self.arguments.paths and self.output.db is not None and not self.output.quiet


Verb = Callable[[], Exit]


def parse(words: Sequence[str]) -> Judge | Verb | Exit:
    """What the command line asks for; an exit code where help was asked for, and has been printed.

    Raises UsageError for what it does not know."""
    try:
        return _program.main(args=list(words), prog_name=PROGRAM, standalone_mode=False)
    except click.UsageError as error:
        raise UsageError(error.format_message()) from error
    except click.Abort:
        raise KeyboardInterrupt from None
    except SystemExit as ended:
        if ended.code == 0:  # a shell has asked what may follow
            return Exit.ACCEPTED
        raise BrokenPipeError from None  # nobody reads the help any more


class _Program(click.Group):
    """Judging needs no verb: words that begin with none are its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        names_verb = bool(args and args[0] and args[0] in self.commands)
        if args and not names_verb and not ctx.resilient_parsing:
            self._refuse_misspelt(args[0])
        return super().parse_args(ctx, args if names_verb else ["", *args])

    def _refuse_misspelt(self, word: str) -> None:
        """Raises UsageError for what is nearly a verb, and neither a file nor the name of one."""
        is_another = word.startswith("-") or not word.replace("-", "_").isidentifier() or Path(word).exists()
        near = [] if is_another else difflib.get_close_matches(word, self.commands, 1)
        if near:
            raise UsageError(f"There is no verb, file or folder {word}. Did you mean '{near[0]}'?")


def _report_of(_ctx: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> writing.Reports:
    return writing.asked(values)


def _dtype_of(_ctx: click.Context, _option: click.Parameter, value: str) -> str:
    return DTYPE_NAMES.get(value, value)


def _show_version(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked:
        with contextlib.suppress(PackageNotFoundError):  # a checkout that nobody installed
            click.echo(f"kernelgate {version('kernelgate')}")
        click.echo(f"judge {judge_version()}")
        ctx.exit()


EXIT_CODES = "Exit codes: " + "; ".join(f"{code.value} {code.meaning}" for code in Exit) + "."


class _Judging(click.Command):
    """The command without a name."""

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(PROGRAM, " ".join(self.collect_usage_pieces(ctx)))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, _first_sentence(verb)) for name, verb in verbs.commands().items()])
            formatter.write_paragraph()
            formatter.write_text(f"'{PROGRAM} VERB --help' shows the options of each.")
        super().format_epilog(ctx, formatter)


def _first_sentence(verb: click.Command) -> str:
    """Of its help."""
    return f"{re.split(r'[.:] ', verb.help or '')[0].rstrip('.')}."


@click.command(
    cls=_Judging,
    epilog=EXIT_CODES,
    help="Judge and time kernel submissions: files or folders, all of submissions/ without one.",
)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PATH]...", shell_complete=verbs_or_files)
@click.option(
    "--problem",
    metavar="PROBLEM",
    shell_complete=problems_like,
    help="A problem file, the name of one in problems/, or a folder of files, where names say which submission is for "
    "which (default: by folder).",
)
@click.option("--device", type=click.Choice(["cuda", "cpu", "emulator"]), help="Insist on a device.")
@chooses_cases
@click.option(
    "--dtype",
    default="",
    metavar="DTYPE",
    callback=_dtype_of,
    help=f"Only cases of this dtype: {', '.join(DTYPE_NAMES)}, int64, …",
)
@click.option("--seed", type=int, metavar="N", help="Repeat a run's data (default: drawn anew).")
@click.option(
    "--against",
    metavar="LIST",
    help=f"Baselines: {', '.join(against.known())}, or submission files (default: {against.USUAL}; with --quick "
    f"{against.QUICK}).",
)
@click.option("-x", "--first-failure", is_flag=True, help="Stop a submission at its first failed case.")
@click.option(
    "--quick",
    is_flag=True,
    help="Fewer rounds, against eager alone: of the first timed case, or of those that -k and --dtype choose.",
)
@click.option("--thorough", is_flag=True, help="Up to 5 s a case on a GPU and 20 s on a CPU, for narrower intervals.")
@click.option("--device-time", is_flag=True, help="Also the GPU's own time of every timed call.")
@click.option("--no-timing", is_flag=True, help="Verdicts only.")
@click.option("--check", is_flag=True, help="Emulator: all detectors in every case (slower).")
@click.option("--show-output", is_flag=True, help="All that a submission prints, and not only where a case fails.")
@click.option("--sanitize", is_flag=True, help="Then run compute-sanitizer over the cases (needs a GPU).")
@click.option(
    "--timeout", type=float, default=60.0, show_default=True, metavar="S", help="Seconds that one call may take."
)
@chooses_isolation
@click.option(
    "--min-speedup",
    type=float,
    metavar="X",
    help="Fail (exit 4) unless the whole interval of the speedup over eager reaches X.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that judge side by side, each some of the submissions (default: one for each GPU, else one).",
)
@click.option("--cluster", metavar="HOST:PORT", default="", help="Judge on a cluster of Ray's (docs/cluster.md).")
@click.option("--accelerator", metavar="TYPE", default="", help="With --cluster: on GPUs of this model, as H100.")
@click.option("--json", metavar="FILE", help="Write the results as JSON; - for standard output.")
@click.option(
    "--report",
    "reports",
    metavar="FORMAT=FILE",
    multiple=True,
    callback=_report_of,
    help=f"Write a report; - for standard output. May be given several times. Formats: {', '.join(formats.names())}.",
)
@click.option(
    "--db", type=click.Path(path_type=Path), metavar="FILE", help="Keep evaluations in FILE (default: KERNELGATE_DB)."
)
@click.option("--no-store", is_flag=True, help="Keep no evaluation.")
@click.option("--again", is_flag=True, help="Without a PATH: judge also what the database has a verdict on.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
@click.option("-q", "--quiet", is_flag=True, help="A line for each submission, why it is wrong, and notes.")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Every case of several submissions, registers, counts, and what was chosen.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Versions of kernelgate and of its judge.",
)
def judging(
    quick: bool,
    thorough: bool,
    timeout: float,
    no_timing: bool,
    json: str | None,
    db: Path | None,
    no_store: bool,
    again: bool,
    jobs: int | None,
    **given: Any,
) -> Judge:
    for path in given["paths"]:
        if str(path) in verbs.commands() and not path.exists():
            raise UsageError(f"{path} is a verb, and a verb comes first: {PROGRAM} {path} [OPTIONS].")
    if quick and thorough:
        raise UsageError("--quick and --thorough exclude each other; give one of the two.")
    reports = [*given.pop("reports"), *([("json", json)] if json else [])]
    if db and no_store:
        raise UsageError("--db and --no-store exclude each other; give one of the two.")
    if jobs and given["cluster"]:
        raise UsageError("--jobs is of this machine, and --cluster has as many processes as its nodes; leave one out.")
    kept = None if no_store else db or results_db()
    output = Output(
        writing.each_for_itself(reports), given.pop("color"), given.pop("quiet"), given.pop("verbose"), kept
    )
    arguments = Arguments(
        effort="quick" if quick else "thorough" if thorough else "usual",
        timing=not no_timing,
        timeout_s=timeout,
        **given,
    )
    here = not arguments.paths and not arguments.cluster
    return Judge(arguments, output, jobs, may_answer=here and arguments.is_plain and kept is not None and not again)


_program = _Program(
    name=PROGRAM,
    commands=ChainMap({"": judging}, cast(MutableMapping[str, click.Command], verbs.commands())),
    context_settings={"help_option_names": ["-h", "--help"]},
)
