"""Copies of a reference's model."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch


def copied(model: torch.nn.Module) -> torch.nn.Module:
    """A deep copy. Results of an earlier call that it keeps, as attention weights or weight_norm's weight, come without
    their graph: copy.deepcopy refuses those."""
    kept = (tensor for module in model.modules() for tensor in _tensors(list(vars(module).values())))
    return copy.deepcopy(model, {id(tensor): tensor.detach().clone() for tensor in kept if tensor.grad_fn is not None})


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
