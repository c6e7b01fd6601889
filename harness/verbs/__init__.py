"""What eval.py does beside judging: a verb a file, each with its options (`command`) and what it does.

A verb's `command` gives a function without arguments, which does it and returns the exit code.
"""

from __future__ import annotations

import click

from harness.verbs import audit, env, list_, profile


def commands() -> dict[str, click.Command]:
    """The verbs by their names."""
    return {"audit": audit.command, "list": list_.command, "env": env.command, "profile": profile.command}
