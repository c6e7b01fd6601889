"""Results as JSON, whose fields docs/json.md lists. Notes stand twice, as sentences and as values."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import UsageError
from harness.report.view import View
from harness.report.words import sentence
from harness.verdict import SCHEMA, Accepted, Evaluation, Geomeans, Results


def render(results: Results, _view: View) -> str:
    """As `dumps`."""
    return dumps(results).decode()


def dumps(results: Results) -> bytes:
    """Indented UTF-8 JSON. Infinite and NaN figures become null, as JSON has neither."""
    written = msgspec.to_builtins(results)
    for entry, evaluation in zip(written["evaluations"], results.evaluations, strict=True):
        entry["noted"], entry["notes"] = entry["notes"], [sentence(note) for note in evaluation.notes]
    return msgspec.json.format(msgspec.json.encode(written), indent=1) + b"\n"


def load(path: Path) -> Results:
    """Read what `dumps` wrote. Raises UsageError for a file that is none, or of a schema that is not known here."""
    try:
        return loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"The results {path} cannot be read: {error.strerror}.") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def loads(data: bytes) -> Results:
    """As `load`, from the content of a file."""
    try:
        written = msgspec.json.decode(data, type=_Written)
        _require_schema(written.schema)
        results = msgspec.convert(_with_notes(msgspec.to_builtins(written)), type=Results)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"this is no file of results that eval.py wrote: {error}.") from error
    for evaluation in results.evaluations:
        _require_possible(evaluation)
    return results


class _Written(msgspec.Struct):
    """As much of a file as must be right before the rest is looked at."""

    schema: str
    environment: dict[str, Any]
    evaluations: list[dict[str, Any]]


def _with_notes(written: dict[str, Any]) -> dict[str, Any]:
    """`written` with notes as values; a file that has none holds sentences alone."""
    for entry in written["evaluations"]:
        sentences = [{"note": "sentence", "text": text} for text in entry.get("notes", [])]
        entry["notes"] = entry.pop("noted", sentences)
    return written


def _require_schema(schema: str) -> None:
    family, _, version = schema.rpartition("/")
    known_family, _, known_version = SCHEMA.rpartition("/")
    if family != known_family or not version.isdigit():
        raise UsageError(f"its schema is '{schema}', and eval.py writes '{SCHEMA}'. Give a file that eval.py wrote.")
    if int(version) > int(known_version):
        raise UsageError(
            f"its schema is '{schema}', which is newer than the '{SCHEMA}' that this kernelgate reads. "
            "Update kernelgate, or write the results again with this version."
        )


def _require_possible(evaluation: Evaluation) -> None:
    """Raises UsageError for a speedup that no clock gives: who ranks takes its logarithm."""
    if isinstance(evaluation, Accepted):
        _require_speedups(evaluation)
        _require_speedups(evaluation.captured or Geomeans())


def _require_speedups(of: Accepted | Geomeans) -> None:
    for name, value, interval in (
        ("geomean_speedup", of.geomean_speedup, of.geomean_interval),
        ("geomean_speedup_over_best", of.geomean_speedup_over_best, of.geomean_over_best_interval),
    ):
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"its {name} is {value}, which no speedup is.")
        if interval is not None and not (value is not None and 0 < interval[0] <= value <= interval[1] < math.inf):
            raise UsageError(f"its {name} is {value} with the interval {list(interval)}, which does not hold it.")
