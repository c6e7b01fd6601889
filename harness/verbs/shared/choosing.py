"""What judging and several verbs let their user choose alike: cases, and the isolation."""

from __future__ import annotations

import click

from harness.isolation.levels import ASKED

chooses_cases = click.option(
    "-k",
    "select",
    metavar="CASE",
    default="",
    help="Only cases whose name contains CASE, in capitals or not; a whole name means that case alone.",
)
"""Gives a command `select`, as Arguments call it; Problem.matching reads it."""

chooses_isolation = click.option(
    "--isolation",
    type=click.Choice(ASKED),
    default="auto",
    help="auto: the strongest that works here; require: fail without namespaces.",
)
