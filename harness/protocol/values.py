"""Python values that are no tensors, as JSON: constructor arguments, and the constants among a forward's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct


class Constant(Struct, frozen=True):
    """An argument of `forward` that is no tensor: its position among all arguments, and its value encoded."""

    position: int
    value: Any


def encode_value(value: Any) -> Any:
    """`value` as JSON that tells tuples, lists, torch.Size and torch.dtype apart. Raises TypeError for what has no such
    form."""
    import torch  # here: who only passes messages on does without it

    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Size):  # a tuple, too, and a submission may ask which
        return {"size": list(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, tuple):
        return {"tuple": [encode_value(v) for v in value]}
    if isinstance(value, list):
        return {"list": [encode_value(v) for v in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: encode_value(v) for key, v in value.items()}}
    raise TypeError(f"a constructor argument of type {type(value).__name__} cannot be handed to a submission")


def encode_constants(constants: Mapping[int, Any]) -> list[Constant]:
    """Constants by position, encoded. Raises TypeError as `encode_value` does."""
    return [Constant(position, encode_value(value)) for position, value in constants.items()]


def decode_constants(constants: Sequence[Constant]) -> dict[int, Any]:
    """The inverse of `encode_constants`."""
    return {constant.position: decode_value(constant.value) for constant in constants}


def decode_value(value: Any) -> Any:
    """The inverse of `encode_value`."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "dict":
        return {key: decode_value(v) for key, v in content.items()}
    if kind == "size":
        import torch

        return torch.Size(content)
    if kind == "dtype":
        import torch

        return getattr(torch, content)
    items = [decode_value(v) for v in content]
    return tuple(items) if kind == "tuple" else items
