"""nn.LayerNorm over arbitrary trailing dimensions, in fp32. `layernorm_dtypes` is about other types."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """The reference: LayerNorm over the trailing dimensions `normalized_shape`, with weight and bias."""

    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape, eps=eps)

    def forward(self, x):
        return self.ln(x)


def case(name, shape, dims=1, **options):
    """A case that normalises the last `dims` dimensions of an input of `shape`."""
    return dict(name=name, init=[shape[len(shape) - dims :]], shapes=[shape], batch=dims < len(shape), **options)


def smaller(shape, dims=1):
    """What a CPU runs in place of a case that fills a GPU."""
    return dict(init=[shape[len(shape) - dims :]], shapes=[shape])


HEADLINE = (16, 64, 256, 256)

CASES = [
    # Timed: the headline (KernelBench level 1, problem 40) and the shapes of transformers.
    case("headline", HEADLINE, 3, distribution="uniform", timed=True, scaled=smaller((16, 64, 32, 32), 3),
         emulated=smaller((2, 64, 16, 16), 3)),
    case("8192x1024", (8192, 1024), distribution="rows", timed=True, scaled=smaller((512, 1024)),
         emulated=smaller((16, 1024))),
    case("8192x4096", (8192, 4096), distribution="rows", timed=True, scaled=smaller((256, 4096)),
         emulated=smaller((8, 4096))),
    case("4096x8192", (4096, 8192), distribution="rows", timed=True, scaled=smaller((128, 8192)),
         emulated=smaller((4, 8192))),
    case("2048x16384", (2048, 16384), distribution="rows", timed=True, scaled=smaller((64, 16384)),
         emulated=smaller((2, 16384))),
    case("32x128x768", (32, 128, 768), distribution="rows", timed=True, scaled=smaller((4, 128, 768)),
         emulated=smaller((4, 8, 768))),
    # Trailing dimensions.
    case("one trailing dim", (6, 5, 4, 128), 1, distribution="rows"),
    case("two trailing dims", (6, 5, 12, 32), 2, distribution="rows"),
    case("three trailing dims", (6, 5, 12, 32), 3, distribution="rows"),
    case("four trailing dims", (6, 5, 12, 32), 4, distribution="rows"),
    # Small and odd shapes.
    case("1x7", (1, 7), distribution="rows"),
    case("2x33", (2, 33), distribution="rows"),
    case("4x128", (4, 128), distribution="rows"),
    case("16x1024", (16, 1024), distribution="rows"),
    case("3x4096", (3, 4096), distribution="rows"),
    case("D = 1", (37, 1), distribution="rows"),
    case("D = 769", (19, 769), distribution="rows"),
    case("D = 1023", (19, 1023), distribution="rows"),
    # One vector of 16 bytes more than a power of two, where kernels change how they share a row out.
    *(case(f"D = {d}", (3, d), distribution="rows") for d in (516, 1028, 2052, 4100, 8196)),
    case("one row", (1, 65536), distribution="rows"),
    case("70,000 rows", (70_000, 24), distribution="rows", scaled=smaller((800, 24))),
    case("no rows", (0, 256)),
    # Memory: what a view of a batch looks like.
    case("not contiguous", (9, 40, 96), distribution="rows", layout="transposed"),
    case("4-byte aligned", (13, 1024), distribution="rows", layout="offset"),
    # Numbers that break shortcuts.
    case("N(1e4, 1)", (8, 4096), distribution="large_mean"),
    case("N(1000, 0.1)", (8, 4096), distribution="narrow"),
    case("outlier first", (8, 4096), distribution="outlier"),
    case("block means", (8, 4096), distribution="blocks"),
    case("long row, N(1e4, 1)", (2, 64, 128, 128), 3, distribution="large_mean", scaled=smaller((2, 64, 64, 64), 3),
         emulated=smaller((2, 64, 33, 32), 3)),
    case("long row, block means", (2, 64, 128, 128), 3, distribution="blocks", scaled=smaller((2, 64, 64, 64), 3),
         emulated=smaller((2, 64, 33, 32), 3)),
    case("constant rows", (8, 512), distribution="constant"),
    case("subnormal variance", (8, 512), distribution="tiny"),
    case("NaN and Inf stay in their row", (8, 512), distribution="non_finite"),
    # The constructor's arguments: nn.LayerNorm takes an int for one dimension, and any sequence.
    case("eps = 0.1", (8, 320), distribution="rows") | dict(init=[(320,), 0.1]),
    case("normalized_shape an int", (8, 320), distribution="rows") | dict(init=[320]),
    case("normalized_shape a list", (6, 5, 12, 32), 2, distribution="rows") | dict(init=[[12, 32]]),
    case("normalized_shape a torch.Size", (6, 5, 12, 32), 2, distribution="rows") | dict(init=[torch.Size([12, 32])]),
]  # fmt: skip


def wide(rng):
    """A few rows of up to 20,000 elements, mostly whole vectors: where kernels choose how to share a row out."""
    width = int(2 ** rng.uniform(9, 14.3))
    return int(rng.integers(1, 4)), width if rng.random() < 0.25 else width // 8 * 8


def random_cases(rng):
    """Six shapes that no submission can have been written for, drawn anew at each run."""
    drawn = []
    for _ in range(3):
        rank = int(rng.integers(2, 5))
        dims = int(rng.integers(1, rank + 1))
        shape = tuple(int(n) for n in rng.integers(1, (0, 0, 600, 40, 18)[rank], rank))
        drawn.append(case("random", shape, dims, distribution="rows"))
    return drawn + [case("random", wide(rng), distribution="rows") for _ in range(3)]


def get_init_inputs():
    return [HEADLINE[1:]]


def get_inputs():
    return [torch.rand(*HEADLINE)]
