"""Why a result may be wrong: docs/judging.md is made from harness/diagnosis."""

from __future__ import annotations

import inspect

from harness.diagnosis import GENERIC, HYPOTHESES


def table() -> str:
    """A line for each hypothesis, in the order in which they are tried."""
    rows = [
        f"| `{hypothesis.__name__}` | {inspect.getdoc(hypothesis)} | {'any' if hypothesis in GENERIC else 'steps'} |"
        for hypothesis in HYPOTHESES
    ]
    return "\n".join(["| hypothesis | what it says | problem |", "|---|---|---|", *rows]) + "\n"
