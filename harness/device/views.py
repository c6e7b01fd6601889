"""Tensors as views of raw shared bytes, for the judge's side and the workers' alike."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness.protocol.wire import TensorRef


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from a tensor's first to its last in memory, those between them as well."""
    last = sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    return 0 if 0 in shape else 1 + last


def view_bytes(raw: torch.Tensor, ref: TensorRef) -> torch.Tensor:
    """The tensor that `ref` describes inside `raw`, a one-dimensional uint8 tensor."""
    dtype = getattr(torch, ref.dtype)
    nbytes = span(ref.shape, ref.stride) * dtype.itemsize
    return raw[ref.offset : ref.offset + nbytes].view(dtype).as_strided(ref.shape, ref.stride)
