"""An evaluation as a row, and back."""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from harness.verdict import Accepted, Evaluation, Geomeans, digest_of_cases

# Half the width of a 95% interval in standard errors.
Z_95 = 1.96

BOARD = ("problem", "problem_sha256", "cases", "judge", "device", "model", "versions")
_EVALUATION = (
    "digest", "date", "environment", "submission", "source_sha256", "seed", "status", "reason", "ranked", "log_speedup",
    "variance", "log_over_best", "log_captured", "log_captured_over_best", "plain",
)  # fmt: skip


def _named(names: tuple[str, ...]) -> str:
    return ", ".join(f":{name}" for name in names)


INSERT_BOARD = f"INSERT INTO board ({', '.join(BOARD)}) VALUES ({_named(BOARD)}) ON CONFLICT DO NOTHING"
# Values come by their names: with `row`, and `plain`.
INSERT_EVALUATION = (
    f"INSERT INTO evaluation (board, {', '.join(_EVALUATION)}) SELECT id, {_named(_EVALUATION)} FROM board "
    f"WHERE {' AND '.join(f'{name} = :{name}' for name in BOARD)} ON CONFLICT (digest) DO NOTHING"
)
INSERT_CONTENT = "INSERT INTO content SELECT id, :content FROM evaluation WHERE digest = :digest"


@dataclass(frozen=True)
class Stored:
    """An evaluation, the machine and versions that it was made with, and what the store calls it."""

    digest: str
    evaluation: Evaluation
    environment: Mapping[str, Any]

    @property
    def date(self) -> str:
        """ISO 8601, in UTC."""
        return str(self.environment.get("date", ""))


def environment_row(environment: Mapping[str, Any]) -> dict[str, str]:
    """A row of the table environment."""
    content = msgspec.json.encode(dict(environment), order="sorted")
    return {"digest": _digest(content), "content": content.decode()}


def board_of(evaluation: Evaluation, environment: Mapping[str, Any]) -> dict[str, Any]:
    """What is compared with it: a row of the table board."""
    return {
        "problem": evaluation.problem,
        "problem_sha256": evaluation.problem_sha256,
        "cases": evaluation.chosen_cases or digest_of_cases(case.name for case in evaluation.cases),
        "judge": str(environment.get("judge", "")),
        "device": evaluation.device,
        "model": model_of(evaluation.device, environment),
        "versions": versions_of(evaluation.device, environment),
    }


def row(evaluation: Evaluation, environment: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of the tables board, evaluation and content, by their columns."""
    content = msgspec.json.encode(evaluation)
    kept = environment_row(environment)
    accepted = evaluation if isinstance(evaluation, Accepted) else None
    called, captured = accepted or Geomeans(), (accepted and accepted.captured) or Geomeans()
    return board_of(evaluation, environment) | {
        "digest": _digest(content, kept["content"].encode()),
        "date": str(environment.get("date", "")),
        "environment": kept["digest"],
        "submission": evaluation.submission,
        "source_sha256": evaluation.source_sha256,
        "seed": str(evaluation.seed),
        "status": evaluation.__struct_config__.tag,
        "reason": None if evaluation.reason is None else str(evaluation.reason),
        "ranked": int(accepted is not None and accepted.is_ranked),
        "log_speedup": _log(called.geomean_speedup),
        "variance": variance(called.geomean_interval),
        "log_over_best": _log(called.geomean_speedup_over_best),
        "log_captured": _log(captured.geomean_speedup),
        "log_captured_over_best": _log(captured.geomean_speedup_over_best),
        "content": zlib.compress(content),
    }


def stored_of(evaluation: Evaluation, environment: Mapping[str, Any]) -> Stored:
    """It as the store would have it, by the same digest."""
    return Stored(row(evaluation, environment)["digest"], evaluation, environment)


def evaluation_of(content: bytes) -> Evaluation:
    """What the table content holds."""
    return msgspec.json.decode(zlib.decompress(content), type=Evaluation)


def model_of(device: str, environment: Mapping[str, Any]) -> str:
    """The hardware that times are of: the GPU, or the processor and how many there are."""
    if device == "cuda":
        return str(environment.get("gpu") or "an unknown GPU")
    return f"{environment.get('processor') or 'an unknown processor'}, {environment.get('cpus')} processors"


def versions_of(device: str, environment: Mapping[str, Any]) -> str:
    """The versions that eager's time depends on, so that speedups with others are on other boards."""
    torch = f"torch {environment.get('torch')}"
    return f"{torch}, driver {environment.get('driver')}" if device == "cuda" else torch


def _log(value: float | None) -> float | None:
    return math.log(value) if value else None


def variance(interval: tuple[float, float] | None) -> float | None:
    """Of the logarithm of what has this 95% interval."""
    if not interval or interval[0] <= 0:
        return None
    return (math.log(interval[1] / interval[0]) / (2 * Z_95)) ** 2


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]
