"""What eval.py does beside judging: a verb a file, each with its options (`command`) and what it does.

A verb's `command` gives a function without arguments, which does it and returns the exit code.
"""

from __future__ import annotations

import click

from harness.verbs import (
    audit,
    bundle,
    compare,
    env,
    export,
    gate,
    history,
    import_,
    leaderboard,
    list_,
    new,
    profile,
    rejudge,
    report,
    serve,
    verify,
    watch,
    withdraw,
)


def commands() -> dict[str, click.Command]:
    """The verbs by their names."""
    return {
        "audit": audit.command,
        "bundle": bundle.command,
        "compare": compare.command,
        "env": env.command,
        "export": export.command,
        "gate": gate.command,
        "history": history.command,
        "import": import_.command,
        "leaderboard": leaderboard.command,
        "list": list_.command,
        "new": new.command,
        "profile": profile.command,
        "rejudge": rejudge.command,
        "report": report.command,
        "serve": serve.command,
        "verify": verify.command,
        "watch": watch.command,
        "withdraw": withdraw.command,
    }
