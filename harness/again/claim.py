"""What a bundle claims, and whether judging it anew bears that out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from harness.again.bundle import Bundle
from harness.report.figures import over_eager
from harness.store import Standing, boards, open_store
from harness.store.rows import model_of, versions_of
from harness.verdict import Accepted, CasePassed, Errored, Evaluation, Geomeans, status_of

# SQLite's name for a database that is in no file.
IN_MEMORY = Path(":memory:")

VERDICT_ALONE = "--no-timing verifies the verdict alone."

NOT_COMPARED = "Not compared: figures over the fastest baseline, which may be another one, and those of single cases."


class Finding(Enum):
    """Whether a claim holds."""

    HOLDS = "the claim holds"
    FAILS = "the claim does not hold"
    REJECTED = "the claim does not hold: the submission is rejected"
    UNKNOWN = "nothing can be said of the claim"


@dataclass(frozen=True)
class Answer:
    """Whether a claim holds, and why, a sentence each."""

    finding: Finding
    sentences: tuple[str, ...]


def of_verdict(claim: Evaluation, now: Evaluation) -> Answer | None:
    """What one evaluation with the verdict alone says against the claim; None where it is the same."""
    if isinstance(now, Errored):
        return Answer(Finding.UNKNOWN, (f"It could not be judged with seed {now.seed}: {now.message}",))
    if status_of(now) == status_of(claim):
        return None
    against = f"It was {status_of(claim)}, and with seed {now.seed} it is {status_of(now)}."
    return Answer(Finding.FAILS if isinstance(now, Accepted) else Finding.REJECTED, (against,))


def of_all(bundle: Bundle, now: Sequence[Evaluation], here: Mapping[str, Any]) -> Answer:
    """What evaluations say that all have the claim's verdict; `here` is the environment that they were made in."""
    claim = bundle.evaluation
    same = f"The verdict is the same with seeds {' and '.join(str(evaluation.seed) for evaluation in now)}."
    reasons = sorted({str(evaluation.reason) for evaluation in now} - {str(claim.reason)})
    if reasons:
        same += f" The reason is another: {', '.join(reasons)}."
    again = [evaluation for evaluation in now if isinstance(evaluation, Accepted)]
    if not isinstance(claim, Accepted) or (claim.geomean_speedup is None and not _other_figures(claim)):
        return Answer(Finding.HOLDS, (same, "The claim has no speedup: the verdict alone was verified."))
    if claim.geomean_speedup is None:
        others = ", ".join(_other_figures(claim))
        return Answer(
            Finding.UNKNOWN, (same, f"It has figures without a speedup over eager: {others}. {VERDICT_ALONE}")
        )
    if why := _why_untimed(claim, again, bundle.environment, here):
        return Answer(Finding.HOLDS, (same, f"The verdict alone was verified: {why}"))
    found, said = _of_speedups(claim, again)
    if found == Finding.HOLDS and (against := _against_captured(claim, again)):
        found, said = Finding.FAILS, against
    versions = _other_versions(claim.device, bundle.environment, here)
    return Answer(found, (same, said, NOT_COMPARED, *versions))


def _other_figures(claim: Accepted) -> list[str]:
    """What it claims beside the speedup over eager."""
    captured = claim.captured or Geomeans()
    there = {
        "over the fastest baseline": claim.geomean_speedup_over_best,
        "captured": captured.geomean_speedup or captured.geomean_speedup_over_best,
        "times of cases": any(case.timing or case.parts for case in claim.cases if isinstance(case, CasePassed)),
    }
    return [name for name, figure in there.items() if figure]


def _against_captured(claim: Accepted, again: Sequence[Accepted]) -> str:
    """A sentence where captured speedups over eager differ by the rule of `standing`; else empty."""
    pairs = [(each, each.captured) for each in (claim, *again) if each.captured and each.captured.geomean_speedup]
    if len(pairs) <= len(again):  # one of them has none
        return ""
    claimed, *measured = [
        msgspec.structs.replace(each, geomean_speedup=means.geomean_speedup, geomean_interval=means.geomean_interval)
        for each, means in pairs
    ]
    if standing(claimed, measured) != Standing.DISAGREES:
        return ""
    now = " and ".join(map(over_eager, measured))
    return f"The captured speedups differ: over eager {over_eager(claimed)} was claimed, {now} were measured."


def _why_untimed(claim: Accepted, again: Sequence[Accepted], there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Why the speedups are not compared; empty where they are."""
    device = again[0].device
    if device != claim.device:
        return f"it was timed on {claim.device}, and this run is on {device}."
    if all(evaluation.geomean_speedup is None for evaluation in again):
        return "nothing was timed here."
    if model_of(device, there) != model_of(device, here):
        return f"it was timed on {model_of(device, there)}, and this is {model_of(device, here)}."
    return ""


def _of_speedups(claim: Accepted, again: Sequence[Accepted]) -> tuple[Finding, str]:
    now = " and ".join(over_eager(evaluation) for evaluation in again)
    figures = f"over eager {over_eager(claim)} was claimed, {now} were measured"
    if not claim.is_ranked:
        return Finding.UNKNOWN, f"The claim's speedup is too noisy or in doubt: {figures}. {VERDICT_ALONE}"
    match standing(claim, again):
        case Standing.RANKED:
            return Finding.HOLDS, f"The speedups agree, by the board's rule: {figures}."
        case Standing.DISAGREES:
            return Finding.FAILS, f"The speedups differ by more than 5% and more than intervals explain: {figures}."
    return Finding.UNKNOWN, f"The speedups were not measured well enough here: {figures}. {VERDICT_ALONE}"


def standing(claim: Accepted, again: Sequence[Accepted]) -> Standing:
    """What the board says of an entry with all these evaluations. There is one rule by which evaluations agree, the
    view of harness.store.schema, and this asks it."""
    board = {name: getattr(again[0], name) for name in ("problem", "problem_sha256", "chosen_cases", "source_sha256")}
    all_of_it = [msgspec.structs.replace(evaluation, **board) for evaluation in (claim, *again)]
    with open_store(IN_MEMORY) as store:
        store.add(all_of_it, {}, {})
        ((entry,),) = (board.entries for board in boards(store))
    return entry.standing


def _other_versions(device: str, there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """What else may move a speedup, a sentence each."""
    earlier, now = versions_of(device, there), versions_of(device, here)
    sentences = [] if earlier == now else [f"Versions differ, and eager's time with them: {earlier} then, {now} now."]
    if there.get("judge") != here.get("judge"):
        sentences.append(f"The judge was {there.get('judge') or 'unknown'}, and is {here.get('judge')}.")
    return sentences
