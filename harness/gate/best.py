"""The stored best that a submission is compared with, and why there may be none."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from harness.store import Stored
from harness.store.pairs import SHOWN_DIGITS, short
from harness.store.rows import board_of
from harness.verdict import Accepted, Rejected

# What two evaluations share whose times compare, in words. The judge's version is not among it: the best is run again
# by this one.
COMPARED = {
    "problem_sha256": "content of the problem's file",
    "cases": "set of cases",
    "model": "model of the device",
    "versions": "versions",
}


@dataclass(frozen=True)
class Best:
    """The latest evaluation of the fastest source, or why nothing is compared."""

    stored: Stored | None = None
    why_not: str = ""

    @property
    def words(self) -> str:
        if self.stored is None:
            return ""
        evaluation = self.stored.evaluation
        source = evaluation.source_sha256[:SHOWN_DIGITS]
        return f"{evaluation.submission}, source {source}, stored {self.stored.date[:10] or 'at an unknown date'}"


def choose(found: Sequence[Stored], here: Mapping[str, Any], withdrawn: Collection[str] = ()) -> Best:
    """The fastest of `found`, evaluations of one problem on one device, by the mean of its speedups over eager.

    `here` is the board that a run on this machine would be on. Sources that were rejected there or are in `withdrawn`
    are none. Those of other boards alone are not comparable, which is no fault of whoever is compared."""
    ranked = [s for s in found if isinstance(s.evaluation, Accepted) and s.evaluation.is_ranked]
    if not ranked:
        return Best(why_not="nothing that has a known speedup is stored to compare with")
    comparable = [stored for stored in ranked if not _differs(stored, here)]
    if not comparable:
        return Best(why_not=f"not comparable with what is stored: {_why(ranked[-1], here)}")
    wrong = {s.evaluation.source_sha256 for s in found if isinstance(s.evaluation, Rejected) and not _differs(s, here)}
    of_sources: dict[str, list[Stored]] = {}
    for stored in comparable:
        if stored.evaluation.source_sha256 not in wrong | set(withdrawn):
            of_sources.setdefault(stored.evaluation.source_sha256, []).append(stored)
    if not of_sources:
        return Best(why_not="what is stored to compare with was rejected or withdrawn since")
    return Best(max(of_sources.values(), key=_mean_log)[-1])


def _mean_log(evaluations: Sequence[Stored]) -> float:
    return fmean(math.log(stored.evaluation.geomean_speedup or 1.0) for stored in evaluations)


def _differs(stored: Stored, here: Mapping[str, Any]) -> list[str]:
    there = board_of(stored.evaluation, stored.environment)
    return [name for name in COMPARED if there[name] != here[name]]


def _why(stored: Stored, here: Mapping[str, Any]) -> str:
    there = board_of(stored.evaluation, stored.environment)
    return "; ".join(
        f"{COMPARED[name]}: {short(there[name])} there, {short(here[name])} here" for name in _differs(stored, here)
    )
