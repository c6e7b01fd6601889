"""The stored best that `eval.py gate` runs beside a submission: found in the database, and written to files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import name_of
from harness.gate import best
from harness.gate.best import Best
from harness.gate.config import Config
from harness.gate.targets import Target
from harness.store import open_store
from harness.store.rows import board_of
from harness.verdict import Accepted, digest_of_cases


@dataclass(frozen=True)
class Beside:
    """Files of the stored best and of its copy, for --against."""

    best: Path
    copy: Path

    @property
    def names(self) -> tuple[str, str]:
        """What the two are called among the baselines."""
        return self.best.stem, self.copy.stem


def find(target: Target, device: str, config: Config, db: Path, environment: Mapping[str, Any]) -> Best:
    """What `target` is compared with on this machine. Raises UsageError for a problem that cannot be loaded."""
    if not db.exists():
        return Best(why_not=f"there is no database {db}")
    here = board_of(_as_if(target, device), environment)
    problem = name_of(target.problem)
    with open_store(db) as store:
        of_problem = list(store.stored("problem = ? AND device = ?", (problem, device)))
        withdrawn = store.select("SELECT source_sha256 FROM withdrawal WHERE problem = ?", (problem,))
    name = target.submission.name if config.no_slower_than_best == "itself" else None
    found = [stored for stored in of_problem if name in (None, stored.evaluation.submission)]
    chosen = best.choose(found, here, {row["source_sha256"] for row in withdrawn})
    if chosen.stored and chosen.stored.evaluation.source_sha256 == target.submission.sha256:
        return Best(why_not="it is the stored best itself")
    return chosen


def _as_if(target: Target, device: str) -> Accepted:
    """An evaluation of all cases of it, for the board that it would be on."""
    from harness.problem import load_problem

    return Accepted(
        problem=name_of(target.problem),
        submission=target.submission.name,
        source_sha256=target.submission.sha256,
        device=device,
        seed=0,
        cases=[],
        chosen_cases=digest_of_cases(case.name for case in load_problem(target.problem, 0).cases),
        problem_sha256=hashlib.sha256(target.problem.read_bytes()).hexdigest(),
    )


def written(chosen: Best, db: Path, folder: Path) -> Beside | None:
    """The best's source in two files of `folder`; None where there is none, or its source is not kept."""
    if chosen.stored is None:
        return None
    sha256 = chosen.stored.evaluation.source_sha256
    with open_store(db) as store:
        source = store.source(sha256)
    if source is None:
        return None
    one, copy = (folder / f"{name}_{sha256[: best.SHOWN_DIGITS]}.py" for name in ("best", "best_again"))
    for path in (one, copy):
        path.write_bytes(source)
    return Beside(one, copy)
