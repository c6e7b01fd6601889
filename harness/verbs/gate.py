"""`eval.py gate`: whether kernels may be merged, by the rules of kernelgate.toml."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from harness.exits import Exit
from harness.gate import config
from harness.gate.changes import changed_since
from harness.gate.targets import (
    Target,
    find_targets,
    in_place_of_shipped,
    moved_measures,
    passed_over,
    touched,
    without_folders_problem,
)
from harness.gate.values import Outcome, Remark
from harness.paths import results_db
from harness.report import formats, writing
from harness.report.gating import print_outcome
from harness.report.view import Color, View, console
from harness.report.workflow import no_commands
from harness.storage import cache
from harness.verbs.gating.runner import Gated, Runner
from harness.verbs.shared.database import of_file
from harness.verdict import SCHEMA, Results


@dataclass(frozen=True)
class Asked:
    """What the command line says beside the rules."""

    paths: tuple[Path, ...]
    config_file: Path
    given: Mapping[str, Any]
    """Options that stand for keys of the configuration, by their names there."""
    since: str | None
    reports: writing.Reports
    db: Path | None
    color: Color
    quiet: bool


def _listed(_ctx: click.Context, _option: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(word.strip() for word in value.split(",") if word.strip())


@click.command(
    "gate",
    help="Whether submissions may be merged: judge files or folders (submissions/ without one), and hold them to the "
    "rules of kernelgate.toml. An option goes before the file's key of the same name.",
)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PATH]...")
@click.option(
    "--config", "config_file", type=click.Path(path_type=Path), metavar="FILE", help=f"Default: {config.FILE}, if any."
)
@click.option("--since", metavar="REF", help="Only what differs from where HEAD and this commit or branch parted.")
@click.option("--problems", callback=_listed, metavar="LIST", help="Only these: names, or files.")
@click.option("--devices", callback=_listed, metavar="LIST", help="Each must give a verdict: cuda, cpu, emulator.")
@click.option("--min-speedup", type=float, metavar="X", help="The whole interval of the speedup over eager reaches X.")
@click.option(
    "--no-slower-than-best",
    metavar="itself|problem|off",
    help="No slower than the fastest stored evaluation of itself, or of any to the problem; off: not compared.",
)
@click.option("--max-spills", type=int, metavar="BYTES", help="Most bytes that a thread of a kernel spills.")
@click.option("--max-registers", type=int, metavar="N", help="Most registers that a thread of a kernel needs.")
@click.option("--require-check/--no-require-check", default=None, help="The emulator's detectors watch CUDA kernels.")
@click.option("--require-isolation/--no-require-isolation", default=None, help="Workers have namespaces, or none runs.")
@click.option(
    "--compile-for", callback=_listed, metavar="LIST", help="Architectures, such as sm_90,sm_120; needs nvcc."
)
@click.option(
    "--report",
    "reports",
    metavar="FORMAT=FILE",
    multiple=True,
    help=f"Write a report; - for standard output. May be given several times. Formats: {', '.join(formats.names())}.",
)
@of_file
@click.option("--no-store", is_flag=True, help="Keep no evaluation; what is stored is compared with all the same.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
@click.option("-q", "--quiet", is_flag=True, help="Only what is broken, and what was left out.")
def command(
    paths: tuple[Path, ...],
    config_file: Path | None,
    since: str | None,
    reports: tuple[str, ...],
    db: Path | None,
    no_store: bool,
    color: Color,
    quiet: bool,
    **given: Any,
) -> Callable[[], Exit]:
    chosen = {name.replace("_", "-"): value for name, value in given.items() if value is not None}
    written = writing.each_for_itself(writing.asked(reports))
    asked = Asked(paths, config_file or Path(config.FILE), chosen, since, written, db, color, quiet)
    return partial(run, asked, named_config=config_file is not None, keeps=not no_store)


def run(asked: Asked, *, named_config: bool, keeps: bool) -> Exit:
    """Judge, decide, report. Raises UsageError for a configuration that is none and files that cannot be."""
    writing.require_writable(asked.reports)
    in_file = config.read(asked.config_file) if named_config or asked.config_file.exists() else config.Config()
    rules = config.with_options(in_file, asked.given)
    root = asked.config_file.resolve().parent
    all_targets = find_targets(asked.paths, rules, root)
    targets, remarks = _touched(all_targets, asked, root)
    remarks += in_place_of_shipped(targets)
    remarks += passed_over(asked.paths, rules, root) + without_folders_problem(targets, rules)
    with cache.in_use():
        runner = Runner(rules, asked.db or results_db(), keeps=keeps, color=asked.color, quiet=asked.quiet)
        with no_commands(sys.stderr):
            found = _untouched(asked, remarks) if all_targets and not targets else runner.judge(targets, remarks)
        failed = _report(found, asked)
    for sentence in failed:
        print(f"eval.py: {sentence}", file=sys.stderr)
    return found.outcome.exit or (Exit.USAGE if failed else Exit.ACCEPTED)


def _touched(targets: list[Target], asked: Asked, root: Path) -> tuple[list[Target], list[Remark]]:
    """Of `targets` those that are to be judged, and what is to be said of the change."""
    if asked.since is None:
        return targets, []
    changed = changed_since(asked.since, root)
    judged = touched(targets, changed, asked.config_file)
    return judged, moved_measures(judged, changed, asked.config_file)


def _untouched(asked: Asked, remarks: Sequence[Remark]) -> Gated:
    """An open gate: there is something to judge, and a change touches none of it."""
    remark = Remark("", f"nothing that is judged differs since {asked.since}.")
    return Gated(Results(schema=SCHEMA, environment={}, evaluations=[]), Outcome((), (), (remark, *remarks)), {}, {})


def _report(found: Gated, asked: Asked) -> list[str]:
    """The reports that were asked for, and what the gate says; on standard error where a report goes to the other."""
    view = View(asked.quiet, checked=True, texts=found.texts, files=found.files, gate=found.outcome)
    failed = writing.write(asked.reports, found.results, {}, view)
    to_stdout = writing.go_to_stdout(asked.reports)
    page = console(sys.stderr if to_stdout else sys.stdout, asked.color)
    if not to_stdout and not asked.quiet:
        shown = View(width=page.width, colored=page.color_system is not None and not page.no_color, checked=True)
        with no_commands(sys.stdout):
            sys.stdout.write(formats.find("terminal").render(found.results, shown))
    with no_commands(sys.stderr if to_stdout else sys.stdout):
        print_outcome(page, found.outcome, quiet=asked.quiet)
    return failed
