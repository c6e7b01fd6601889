"""What a submission itself calls the tensors of a call."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import torch


def names_of(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Parameters, buffers and inputs by their names in the submission; inputs behind those that `forward` names are
    what upstream gradients are."""
    names = _arguments(model)
    named: dict[str, torch.Tensor] = {}
    named |= {f"self.{name}": tensor for name, tensor in torch.nn.Module.named_parameters(model)}
    named |= {f"self.{name}": tensor for name, tensor in torch.nn.Module.named_buffers(model)}
    for position, tensor in enumerate(inputs):
        called = names[position] if position < len(names) else f"upstream gradient {position - len(names)}"
        named[called] = tensor
    return named


def _arguments(model: torch.nn.Module) -> list[str]:
    """Names of forward's positional arguments; none where they are not known."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
