"""A reference in float64 that says float32 itself, as in `x.float()`: what it says is float64 then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from harness.oracle.operators import Operators

_CAST = torch.ops.aten._to_copy.default


def may_be_widened(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether float32 in the text of a reference of these inputs and parameters stands for float64 in the oracle: where
    one is float64 itself, it is meant as it stands."""
    return all(tensor.dtype != torch.float64 for tensor in tensors)


class Widened(Operators):
    """Operators give float64 where they are asked for float32, or would give it by default. A cast of what is float64
    already changes nothing, and no mode further out sees it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") == torch.float32:
            kwargs["dtype"] = torch.float64
            if func is _CAST and args[0].dtype == torch.float64 and args[0].device == _device(kwargs, args[0]):
                with torch._C._DisableTorchDispatch():
                    return args[0].clone(memory_format=kwargs.get("memory_format") or torch.preserve_format)
        result = func(*args, **kwargs)
        if func._schema.is_mutable or any(returned.alias_info for returned in func._schema.returns):
            return result
        return tree_map_only(torch.Tensor, _wide, result)


def _device(kwargs: dict[str, Any], tensor: torch.Tensor) -> torch.device:
    return torch.device(kwargs.get("device") or tensor.device)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype != torch.float32:
        return tensor
    with torch._C._DisableTorchDispatch():
        return tensor.double()
