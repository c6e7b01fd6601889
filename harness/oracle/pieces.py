"""Going through large tensors so many elements at a time, so that what is computed with them is small beside them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

# A KernelBench file's inputs fill a GPU's memory in a few copies.
PIECE_ELEMENTS = 1 << 24


def pieces(*tensors: torch.Tensor) -> Iterator[tuple[tuple[int, int], tuple[torch.Tensor, ...]]]:
    """Tensors of one shape as views of so many elements at a time, along their longest dimension; before each its
    number and where in it the views begin."""
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
