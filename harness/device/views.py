"""Tensors as views of raw shared bytes, for the judge's side and the workers' alike."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from harness.protocol.wire import TensorRef


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from a tensor's first to its last in memory, those between them as well."""
    last = sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    return 0 if 0 in shape else 1 + last


def as_it_lies(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of `tensor` in the order of memory, those between them, too."""
    return tensor.as_strided((span(tensor.shape, tensor.stride()),), (1,))


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether there is no room between its elements."""
    return span(tensor.shape, tensor.stride()) <= tensor.numel()


def clear_between(tensor: torch.Tensor) -> None:
    """Where there is room between elements, have NaN stand there, or 0: what is made of it shows."""
    if not is_dense(tensor):
        as_it_lies(tensor).fill_(math.nan if tensor.is_floating_point() else 0)


def view_bytes(raw: torch.Tensor, ref: TensorRef) -> torch.Tensor:
    """The tensor that `ref` describes inside `raw`, a one-dimensional uint8 tensor."""
    dtype = getattr(torch, ref.dtype)
    nbytes = span(ref.shape, ref.stride) * dtype.itemsize
    return raw[ref.offset : ref.offset + nbytes].view(dtype).as_strided(ref.shape, ref.stride)
