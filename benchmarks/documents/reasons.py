"""Every reason that a verdict can have: docs/reasons.md is made from harness/reasons.py."""

from __future__ import annotations

from harness.reasons import Group, Reason


def tables() -> str:
    """A section for each group of reasons, with a table: the reason and what it means."""
    return "\n".join(f"## {group.value}\n\n{_table(group)}" for group in Group)


def _table(group: Group) -> str:
    rows = [f"| `{reason}` | {reason.meaning} |" for reason in Reason if reason.group is group]
    return "\n".join(["| reason | what it means |", "|---|---|", *rows]) + "\n"
