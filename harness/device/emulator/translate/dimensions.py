"""`blockDim` and `gridDim`, the built-in variables; a source may have variables and members of these names, too."""

from __future__ import annotations

from harness.device.emulator.translate import hidden
from harness.device.emulator.translate.lexer import Edits, Source
from harness.device.emulator.translate.scopes import at_namespace_scope

_DIMENSIONS = {"blockDim": "::emu::block_dim()", "gridDim": "::emu::grid_dim()"}


def rewrite(source: Source, edits: Edits) -> None:
    """Replace both where they are the built-in variables."""
    scopes = at_namespace_scope(source)
    for name, value in _DIMENSIONS.items():
        own = hidden.ranges(source, name, scopes)
        for i, token in enumerate(source.tokens):
            if token.text != name or source.at(i - 1) in (".", "->"):
                continue
            if not any(first <= i <= last for first, last in own):
                edits.replace_tokens(i, i + 1, value)
