"""Results as JSON: the schema is harness.verdict."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.verdict import Results


def dumps(results: Results) -> bytes:
    """Indented UTF-8 JSON. Infinite and NaN figures become null, as JSON has neither."""
    return msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n"


def load(path: Path) -> Results:
    """Read what `dumps` wrote. Raises msgspec.ValidationError when the file is of another schema."""
    return msgspec.json.decode(path.read_bytes(), type=Results)
