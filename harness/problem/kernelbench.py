"""KernelBench's convention: get_inputs() gives tensors, and constants that stand between them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from harness.errors import UsageError, a_type
from harness.protocol.arguments import arguments
from harness.protocol.values import encode_value


def call_get_inputs(get_inputs: Callable[[], Any], seed: int, device: torch.device) -> Any:
    """What get_inputs() gives with `device` as torch's default: billions of numbers take a minute on a CPU. If that
    fails, as with numpy, what it gives on the CPU."""
    torch.manual_seed(seed)
    try:
        with device:
            return get_inputs()
    except Exception:
        if device.type == "cpu":
            raise
    torch.manual_seed(seed)
    return get_inputs()


def fewer_samples(whole: int, shapes: Sequence[Sequence[int]]) -> contextlib.AbstractContextManager[Any]:
    """Within it, tensors that torch.rand and its like make with a first dimension of `whole` have that of the first of
    `shapes` instead; with 0 for `whole` nothing changes."""
    if not whole:
        return contextlib.nullcontext()
    from torch.utils._python_dispatch import TorchDispatchMode  # loads much, and is seldom needed

    class FewerSamples(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names = [argument.name for argument in func._schema.arguments]
            makes = not any(isinstance(value, torch.Tensor) for value in args)
            if makes and "size" in names and (position := names.index("size")) < len(args):
                size = list(args[position])
                if size[:1] == [whole]:
                    args = (*args[:position], [shapes[0][0], *size[1:]], *args[position + 1 :])
            return func(*args, **(kwargs or {}))

    return FewerSamples()


def sorted_out(path: Path, values: Any) -> tuple[list[torch.Tensor], dict[int, Any]]:
    """The tensors among inputs, and the constants by their position. Raises UsageError for what is neither."""
    if not isinstance(values, list | tuple):
        raise UsageError(f"{path}: get_inputs() returned {a_type(values)}; it returns a list of inputs.")
    constants = {i: value for i, value in enumerate(values) if not isinstance(value, torch.Tensor)}
    for position, value in constants.items():
        try:
            encode_value(value)
        except TypeError:
            raise UsageError(
                f"{path}: get_inputs() returned {a_type(value)} as input {position}; inputs are tensors, "
                "numbers, strings, None, dtypes, and lists, tuples and dicts of the last four. Make it one of these."
            ) from None
    return [value for value in values if isinstance(value, torch.Tensor)], constants


def with_constants(model: type[torch.nn.Module], constants: Mapping[int, Any]) -> type[torch.nn.Module]:
    """`model` with a forward that takes tensors alone."""
    if not constants:
        return model

    class WithConstants(model):  # type: ignore[misc, valid-type]
        def forward(self, *tensors: torch.Tensor) -> Any:
            return super().forward(*arguments(tensors, constants))

    signature = inspect.signature(model.forward)
    kept = [p for i, p in enumerate(signature.parameters.values(), -1) if i not in constants]  # -1 is `self`
    WithConstants.forward.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return WithConstants
