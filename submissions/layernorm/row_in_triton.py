"""LayerNorm in Triton: a program for each row.

The idea: a row of up to 16,384 elements is loaded once, as one block of registers whose size is the next power of
two, and everything else happens there. A longer row is gone through three times in blocks of 4,096.

Numerics: two passes, in fp32 for values of 16 bits. E[x^2] - m^2 would cancel where the mean is large. What the rounded
mean missed shows as deviations that do not sum to zero, and corrects mean and variance (the corrected two-pass
algorithm: Chan, Golub and LeVeque, The American Statistician 37, 1983).

Triton compiles at the first launch, for each dtype, block and alignment. A submission may start compilers only until
its first call, so the judge rehearses it before: it calls the model on zeros in the form of every case.

Bytes moved: x is read once and y written once where a row fits into a block. On the (16, 64, 256, 256) case 16 programs
keep 16 multiprocessors busy and the rest of the GPU idle.
"""

import torch
import triton
import triton.language as tl
from torch import nn

ALSO_FOR = ["layernorm_dtypes"]  # one kernel for all dtypes

LONGEST_BLOCK, BLOCK_OF_LONGER = 16384, 4096


@triton.jit
def one_block(x, weight, bias, y, width, EPS: tl.constexpr, SUM: tl.constexpr, BLOCK: tl.constexpr):
    """A row that fits into a block; sums are of the type SUM."""
    start = tl.program_id(0).to(tl.int64) * width
    at = tl.arange(0, BLOCK)
    inside = at < width
    row = tl.load(x + start + at, inside, other=0.0).to(SUM)
    off = tl.where(inside, row - tl.sum(row, 0) / width, 0.0)
    off = tl.where(inside, off - tl.sum(off, 0) / width, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(off * off, 0) / width + EPS)
    w, b = tl.load(weight + at, inside).to(SUM), tl.load(bias + at, inside).to(SUM)
    tl.store(y + start + at, (off * scale * w + b).to(y.dtype.element_ty), inside)


@triton.jit
def many_blocks(x, weight, bias, y, width, EPS: tl.constexpr, SUM: tl.constexpr, BLOCK: tl.constexpr):
    """A longer row, in blocks."""
    start = tl.program_id(0).to(tl.int64) * width
    at = tl.arange(0, BLOCK)
    sums = tl.zeros([BLOCK], SUM)
    for first in range(0, width, BLOCK):
        sums += tl.load(x + start + first + at, first + at < width, other=0.0).to(SUM)
    mean = tl.sum(sums, 0) / width

    sums, squares = tl.zeros([BLOCK], SUM), tl.zeros([BLOCK], SUM)
    for first in range(0, width, BLOCK):
        inside = first + at < width
        off = tl.where(inside, tl.load(x + start + first + at, inside, other=0.0).to(SUM) - mean, 0.0)
        sums += off
        squares += off * off
    missed = tl.sum(sums, 0) / width
    scale = 1.0 / tl.sqrt(tl.sum(squares, 0) / width - missed * missed + EPS)

    for first in range(0, width, BLOCK):
        inside = first + at < width
        off = tl.load(x + start + first + at, inside).to(SUM) - mean - missed
        w, b = tl.load(weight + first + at, inside).to(SUM), tl.load(bias + first + at, inside).to(SUM)
        tl.store(y + start + first + at, (off * scale * w + b).to(y.dtype.element_ty), inside)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        x, width = x.contiguous(), self.weight.numel()
        y = torch.empty_like(x)
        if y.numel() == 0:  # a grid has one program at least
            return y
        fits = width <= LONGEST_BLOCK
        block = triton.next_power_of_2(width) if fits else BLOCK_OF_LONGER
        (one_block if fits else many_blocks)[(x.numel() // width,)](
            x, self.weight, self.bias, y, width,
            EPS=self.eps,
            SUM=tl.float64 if x.dtype == torch.float64 else tl.float32,
            BLOCK=block,
            num_warps=min(max(block // 512, 1), 16),
        )  # fmt: skip
        return y
