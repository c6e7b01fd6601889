"""What rules decide on: evaluations of one submission."""

from __future__ import annotations

from harness.gate.values import Candidate, Ran

FILE = "submissions/layernorm/mine.py"


def candidate(*evaluations, checked=True, **more):
    ran = tuple(Ran(e, checked=checked and e.device == "emulator") for e in evaluations)
    return Candidate(FILE, "layernorm", more.pop("needs_check", False), ran=ran, **more)
