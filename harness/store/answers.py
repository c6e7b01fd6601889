"""What a run need not judge: the store has this judge's verdict on the same source, problem and device."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from harness.device.choose import can_time
from harness.errors import HarnessError, UsageError, name_of
from harness.plan import Group, RunPlan
from harness.store.database import Store, open_store
from harness.store.rows import Stored, model_of, versions_of
from harness.submission import Submission
from harness.verdict import Accepted, Errored, Evaluation
from harness.version import judge_version

_LIKE = "source_sha256 = ? AND problem_sha256 = ? AND judge = ? AND device = ? AND plain"


def known(path: Path, plan: RunPlan) -> list[Evaluation]:
    """The latest verdicts on what is planned, by runs that judged all cases by the usual limits, marked with their
    dates. Where a correct submission would be timed, one without times is none. Errors say nothing and are judged
    again; what cannot be read is not known."""
    if not path.exists():
        return []
    try:
        with open_store(path) as store:
            return [
                evaluation
                for group in plan.groups
                for submission in group.submissions
                if (evaluation := _known(store, group, submission, timed=plan.settings.timing))
            ]
    except (HarnessError, UsageError):  # keeping what is judged will say it
        return []


def without(plan: RunPlan, answered: list[Evaluation]) -> RunPlan:
    """The plan of the rest."""
    done = {(evaluation.problem, evaluation.device, evaluation.source_sha256) for evaluation in answered}
    groups = [
        replace(
            group,
            submissions=tuple(
                s for s in group.submissions if (name_of(group.problem), group.device, s.sha256) not in done
            ),
        )
        for group in plan.groups
    ]
    return replace(plan, groups=tuple(group for group in groups if group.submissions))


def in_order(plan: RunPlan, evaluations: list[Evaluation]) -> list[Evaluation]:
    """The evaluations by problem, and those of a problem in the order in which their files were named or found,
    whatever device each needs."""
    problems = {name: place for place, name in reversed([*enumerate(name_of(group.problem) for group in plan.groups)])}
    sources = [submission.sha256 for submission in plan.submissions]
    files = {sha256: place for place, sha256 in reversed([*enumerate(sources)])}  # of equal files the first one's
    return sorted(evaluations, key=lambda e: (problems[e.problem], files[e.source_sha256]))


def _known(store: Store, group: Group, submission: Submission, *, timed: bool) -> Evaluation | None:
    try:
        problem = hashlib.sha256(group.problem.read_bytes()).hexdigest()
    except OSError:
        return None
    found = store.stored(_LIKE, (submission.sha256, problem, judge_version(), group.device))
    for stored in reversed(list(found)):
        if _serves(stored, timed=timed and can_time(group.device)) and _is_of_this_machine(stored):
            return msgspec.structs.replace(stored.evaluation, kept_from=stored.date, submission=submission.name)
    return None


def _serves(stored: Stored, *, timed: bool) -> bool:
    evaluation = stored.evaluation
    if isinstance(evaluation, Accepted):
        return evaluation.geomean_speedup is not None or not timed
    return not isinstance(evaluation, Errored)


def _is_of_this_machine(stored: Stored) -> bool:
    device, here = stored.evaluation.device, _here()
    return all(of(device, stored.environment) == of(device, here) for of in (model_of, versions_of))


def _here() -> Mapping[str, Any]:
    from harness.environment import describe

    return describe()
