"""Tensors as views of raw shared bytes, for the judge's side and the workers' alike."""

from __future__ import annotations

import torch

from harness.protocol.wire import TensorRef


def view_bytes(raw: torch.Tensor, ref: TensorRef) -> torch.Tensor:
    """The tensor that `ref` describes inside `raw`, a one-dimensional uint8 tensor."""
    dtype = getattr(torch, ref.dtype)
    span = 1 + sum((size - 1) * step for size, step in zip(ref.shape, ref.stride, strict=True))
    nbytes = span * dtype.itemsize if 0 not in ref.shape else 0
    return raw[ref.offset : ref.offset + nbytes].view(dtype).as_strided(ref.shape, ref.stride)
