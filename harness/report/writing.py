"""The reports that a command line asks for: read from FORMAT=FILE, and written."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import UsageError
from harness.report import files, formats
from harness.report.view import View
from harness.report.workflow import no_commands, without_commands
from harness.verdict import Results

# In place of a file: standard output.
STDOUT = "-"

# The format whose lines are commands to GitHub's runner, and those that programs read, which bear no line between.
ANNOTATIONS, OF_JSON = "github", frozenset({"json", "jsonl", "sarif", "bmf", "benchmark_action", "hyperfine"})
OF_XML = "junit"

Reports = tuple[tuple[str, str], ...]
"""Formats and the files that they are written to."""


def asked(values: Sequence[str]) -> Reports:
    """Each FORMAT=FILE, taken apart. Raises UsageError for one that is none, or of no format."""
    reports = []
    for value in values:
        name, equals, target = value.partition("=")
        if not equals or not target:
            raise UsageError(f"--report takes FORMAT=FILE, such as json=results.json, and '{value}' was given.")
        formats.find(name)
        reports.append((name, target))
    return tuple(reports)


def each_for_itself(reports: Sequence[tuple[str, str]]) -> Reports:
    """Raises UsageError where two reports would be written to one file."""
    taken: dict[str, str] = {}
    for name, target in reports:
        place = target if target == STDOUT else os.path.realpath(target)
        if place in taken:
            where = "standard output" if target == STDOUT else target
            raise UsageError(
                f"Two reports cannot both go to {where}: {taken[place]} and {name} were to. Give each its own file."
            )
        taken[place] = name
    return tuple(reports)


def require_writable(reports: Reports) -> None:
    """Raises UsageError for a file that could not be written."""
    for name, target in reports:
        if target != STDOUT:
            files.require_writable(Path(target), "--json" if name == "json" else "--report")


def write(reports: Reports, results: Results, environment: Mapping[str, Any], view: View) -> list[str]:
    """Write them, files first: who reads standard output may go away. They say the machine and versions, since who
    reads a file is somewhere else. Gives a sentence for each file that could not be written."""
    described = msgspec.structs.replace(results, environment={**environment, **results.environment})
    failed = []
    for name, target in reports:
        if target != STDOUT:
            try:
                files.write(Path(target), formats.find(name).render(described, view))
            except OSError as error:
                failed.append(f"The results could not be written to {target}: {error.strerror}. They stand above.")
    for name, target in reports:
        if target == STDOUT:
            _write_to_stdout(name, formats.find(name).render(described, view))
    if any(name == ANNOTATIONS for name, _ in reports):
        failed += _summarise(described, view)
    return failed


def _write_to_stdout(name: str, text: str) -> None:
    """Where that is a workflow's log, only annotations are commands."""
    if name == ANNOTATIONS:
        sys.stdout.write(text)
    elif name == OF_XML or name in OF_JSON:
        sys.stdout.write(without_commands(text, sys.stdout, _in_xml if name == OF_XML else _in_json))
    else:
        with no_commands(sys.stdout):
            sys.stdout.write(text)


def _in_xml(character: str) -> str:
    return f"&#{ord(character)};"


def _in_json(character: str) -> str:
    return f"\\u{ord(character):04x}"


def _summarise(results: Results, view: View) -> list[str]:
    """The step's summary, where a GitHub workflow says where it goes: other steps may have written to it before."""
    target = os.environ.get("GITHUB_STEP_SUMMARY") if os.environ.get("GITHUB_ACTIONS") else None
    if not target:
        return []
    try:
        with open(target, "a", encoding="utf-8") as file:
            file.write(formats.find("comment").render(results, view) + "\n")
    except OSError as error:
        return [f"The step's summary could not be written to {target}: {error.strerror}."]
    return []


def go_to_stdout(reports: Reports) -> bool:
    """Whether one of them takes the place of the terminal's."""
    return any(target == STDOUT for _, target in reports)
