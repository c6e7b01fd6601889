"""Values as JSON for a file that people look into, too."""

from __future__ import annotations

import msgspec


def encoded(value: object) -> str:
    """Indented, with a line end behind it."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n"
