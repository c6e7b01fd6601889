"""Large tensors in pieces, so that what is computed from a piece is small beside the whole."""

from __future__ import annotations

from collections.abc import Iterator

import torch

# The inputs of some KernelBench files fill a GPU's memory in a few copies.
PIECE_ELEMENTS = 1 << 24


def pieces(*tensors: torch.Tensor) -> Iterator[tuple[tuple[int, int], tuple[torch.Tensor, ...]]]:
    """Views of tensors of one shape, each of about PIECE_ELEMENTS, along their longest dimension. Before each stand
    that dimension's number and where in it the views begin."""
    shape = tensors[0].shape
    dim = max(range(len(shape)), key=lambda d: shape[d], default=0)
    count = -(-tensors[0].numel() // PIECE_ELEMENTS)
    if count <= 1:
        yield (dim, 0), tensors
        return
    start = 0
    for views in zip(*(t.tensor_split(count, dim) for t in tensors), strict=True):
        yield (dim, start), views
        start += views[0].shape[dim]
