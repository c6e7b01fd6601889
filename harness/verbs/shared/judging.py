"""Options that verbs which judge share with judging itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from harness.again.running import Shown
from harness.verbs.shared.choosing import chooses_isolation

Decorated = Callable[..., Any]


def how_it_judges(function: Decorated) -> Decorated:
    """Give a command `timing` and what `how_it_gives_verdicts` gives, as Arguments calls them."""
    no_timing = click.option("--no-timing", "timing", is_flag=True, default=True, flag_value=False,
                             help="Verdicts only.")  # fmt: skip
    return how_it_gives_verdicts(no_timing(function))


def how_it_gives_verdicts(function: Decorated) -> Decorated:
    """Give a command `device`, `check`, `timeout_s` and `isolation`, as Arguments calls them."""
    options = [
        click.option("--device", type=click.Choice(["cuda", "cpu", "emulator"]), help="Insist on a device."),
        click.option("--check", is_flag=True, help="Emulator: all detectors (slower)."),
        click.option(
            "--timeout", "timeout_s", type=float, default=60.0, show_default=True, metavar="S",
            help="Seconds that one call may take.",
        ),
        chooses_isolation,
    ]  # fmt: skip
    return functools.reduce(lambda decorated, option: option(decorated), reversed(options), function)


def how_it_shows(function: Decorated) -> Decorated:
    """Give a command `shown`, made of --color, -q and -v."""

    @functools.wraps(function)
    def with_shown(*, color: Any, quiet: bool, verbose: bool, **given: Any) -> Any:
        return function(shown=Shown(color, quiet, verbose), **given)

    options = [
        click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True),
        click.option("-q", "--quiet", is_flag=True, help="A line for each submission, why it is wrong, and notes."),
        click.option("-v", "--verbose", is_flag=True, help="Every case, and every step."),
    ]
    return functools.reduce(lambda decorated, option: option(decorated), reversed(options), with_shown)
