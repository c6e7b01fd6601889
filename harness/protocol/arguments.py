"""What a model is called with: tensors, which the judge draws and changes, and constants, which stand between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def arguments(tensors: Sequence[Any], constants: Mapping[int, Any]) -> list[Any]:
    """The arguments of `forward`: `tensors` in their order, and each of `constants` at its position among all."""
    given = list(tensors)
    for position in sorted(constants):
        given.insert(position, constants[position])
    return given
