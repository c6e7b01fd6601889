"""A submission's constructor or forward takes other arguments than the problem gives: what came, and what it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from harness.build.pending import CALLED_AT
from harness.errors import KernelgateError

# A value of an argument is shown with so many characters.
MAX_VALUE = 60


class WrongArguments(KernelgateError, TypeError):
    """What the problem calls with does not fit; the text is a sentence."""


def require_fit(function: Callable[..., Any], called: str, given: Sequence[Any], problems: str) -> None:
    """Raises WrongArguments where `function`, `called` so, does not take the positional arguments `given`; `problems`
    is what it must be called like. Says nothing where its signature is not known."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*given)
    except TypeError as error:
        values = ", ".join(map(shown, given))
        wrong = WrongArguments(
            f"{called} takes {_without_annotations(signature)} and was called as {called}({values}), as the problem's "
            f"{problems}: {error}."
        )
        setattr(wrong, CALLED_AT, _line_of(function))
        raise wrong from None


def _line_of(function: Callable[..., Any]) -> int:
    """The line of its definition; 0 where it has none."""
    defined = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    code = getattr(inspect.unwrap(defined), "__code__", None)
    return code.co_firstlineno if code else 0


def _without_annotations(signature: inspect.Signature) -> str:
    """(normalized_shape, eps=1e-05)"""
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))


def shown(value: object) -> str:
    """A tensor by its form, anything else by its repr."""
    if isinstance(value, torch.Tensor):
        form = "×".join(map(str, value.shape)) or "scalar"
        return f"<{form} {str(value.dtype).removeprefix('torch.')}>"
    text = repr(value)
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 1] + "…"
