"""`eval.py env`: the machine, the versions, the cache and its size."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import click
import msgspec

from harness.exits import Exit


@click.command("env", help="The machine, the versions, the cache and its size.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(as_json: bool) -> Callable[[], Exit]:
    return partial(show, as_json)


def show(as_json: bool) -> Exit:
    """Print what decides a result here."""
    from harness.environment import for_people

    facts = for_people()
    if as_json:
        print(msgspec.json.encode(facts).decode())
        return Exit.ACCEPTED
    for name, value in facts.items():
        print(f"{name:16s} {'not found' if value is None else value}")
    return Exit.ACCEPTED
