"""nn.LayerNorm with everything its constructor takes: eps, elementwise_affine, bias, any trailing dimensions."""

import torch
import torch.nn as nn

OPERATOR = "layernorm"  # which implementations of others it is compared with


class Model(nn.Module):
    """The reference; `weight` and `bias` exist as `nn.LayerNorm` makes them exist."""

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape, eps=eps, elementwise_affine=elementwise_affine, bias=bias)

    def forward(self, x):
        return self.ln(x)


def case(name, shape, dims=1, eps=1e-5, affine=True, bias=True, **options):
    """A case that normalises the last `dims` dimensions of an input of `shape`."""
    return dict(
        name=name,
        init=[shape[len(shape) - dims :], eps, affine, bias],
        shapes=[shape],
        batch=dims < len(shape),
        **options,
    )


def smaller(shape, **options):
    """What a CPU or the emulator runs in place of a larger case."""
    return {key: case("", shape, **options)[key] for key in ("init", "shapes")}


def few(shape):
    """What the emulator runs in place of what a CPU does: an eighth of the rows, but three at least."""
    return (min(shape[0], max(3, shape[0] // 8)), *shape[1:])


def timed(name, shape, small, **options):
    """A timed case, and the shape that a CPU runs in its place."""
    scaled, emulated = smaller(small, **options), smaller(few(small), **options)
    return case(name, shape, **options) | dict(distribution="rows", timed=True, scaled=scaled, emulated=emulated)


def long_rows(name, rows, width, distribution, **options):
    """Rows of whole slices of 128 KB, which kernels spread over blocks; a CPU and the emulator run two shorter ones."""
    small = smaller((2, 66_000), **options)
    return case(name, (rows, width), **options, distribution=distribution, scaled=small, emulated=small)


CASES = [
    timed("8192x4096 no bias", (8192, 4096), (64, 4096), bias=False),
    timed("8192x4096 no bias bf16", (8192, 4096), (64, 4096), bias=False, dtype="bfloat16"),
    timed("4096x8192 plain fp16", (4096, 8192), (32, 8192), affine=False, dtype="float16"),
    timed("2048x16384 plain", (2048, 16384), (16, 16384), affine=False),
    timed("32x1048576 no bias bf16", (32, 1048576), (4, 131072), bias=False, dtype="bfloat16"),
    timed("two dims of 32x64x8192", (32, 64, 8192), (4, 16, 2048), dims=2),
    # What is learnt.
    case("weight and bias", (6, 5, 4, 128), distribution="rows"),
    case("weight only", (6, 5, 4, 128), bias=False, distribution="rows"),
    case("neither", (6, 5, 4, 128), affine=False, distribution="rows"),
    case("neither, bias asked for in vain", (6, 96), affine=False, bias=True, distribution="rows"),
    # eps: what is added to the variance, whatever its size.
    case("eps = 0", (8, 320), eps=0.0, distribution="rows"),
    case("eps = 0, weight only", (8, 320), eps=0.0, bias=False, distribution="rows"),
    case("eps = 1e-12", (8, 320), eps=1e-12, distribution="rows"),
    case("eps = 1, constant rows", (8, 320), eps=1.0, distribution="constant"),
    case("eps = 1000", (8, 320), eps=1000.0, distribution="rows"),
    case("eps = 1e6, weight only", (8, 320), eps=1e6, bias=False, distribution="rows"),
    case("eps = 1, bf16, weight only", (8, 320), eps=1.0, bias=False, distribution="rows", dtype="bfloat16"),
    case("zeros fp16, neither", (8, 512), affine=False, distribution="tiny", dtype="float16"),
    case("eps = 1000, long row", (2, 70_000), eps=1000.0, affine=False, distribution="rows"),
    # What normalized_shape may be: an int for one dimension, and any sequence.
    case("an int", (8, 320), bias=False, distribution="rows") | dict(init=[320, 1e-5, True, False]),
    case("an int, neither", (8, 320), affine=False, distribution="rows") | dict(init=[320, 1e-5, False]),
    case("a list", (6, 5, 12, 32), 2, distribution="rows") | dict(init=[[12, 32]]),
    case("a torch.Size", (6, 5, 12, 32), 2, distribution="rows") | dict(init=[torch.Size([12, 32])]),
    # Trailing dimensions.
    case("a vector", (640,), distribution="normal"),
    case("all dims", (4, 3, 50), 3, affine=False, distribution="normal"),
    case("two dims, weight only", (6, 5, 12, 32), 2, bias=False, distribution="rows"),
    case("four dims, neither", (6, 5, 12, 2, 16), 4, affine=False, distribution="rows"),
    case("five dims of six", (3, 2, 5, 2, 7, 4), 5, bias=False, distribution="rows"),
    # Small and odd shapes, and memory.
    case("D = 1, neither", (37, 1), affine=False, distribution="rows"),
    case("2x33, weight only", (2, 33), bias=False, distribution="rows"),
    case("D = 1023, neither", (19, 1023), affine=False, distribution="rows"),
    # One vector of 16 bytes more than a power of two, where kernels change how they share a row out.
    *(case(f"D = {d}, weight only", (3, d), bias=False, distribution="rows") for d in (1028, 4100, 8196)),
    *(case(f"D = {d} fp16, neither", (3, d), affine=False, distribution="rows", dtype="float16") for d in (2056, 8200)),
    case("long odd row, weight only", (2, 40_001), bias=False, distribution="rows"),
    case("no rows", (0, 256), bias=False),
    case("not contiguous, neither", (9, 40, 96), affine=False, distribution="rows", layout="transposed"),
    case("not contiguous, two dims", (9, 40, 96), 2, distribution="rows", layout="transposed"),
    case("4-byte aligned, weight only", (13, 1024), bias=False, distribution="rows", layout="offset"),
    case("2-byte aligned fp16", (13, 1024), bias=False, dtype="float16", distribution="rows", layout="offset"),
    # Numbers that break shortcuts.
    case("N(1e4, 1), neither", (8, 4096), affine=False, distribution="large_mean"),
    case("N(1000, 0.1), weight only", (8, 4096), bias=False, distribution="narrow"),
    case("outlier first, neither", (8, 4096), affine=False, distribution="outlier"),
    case("long row, N(1e4, 1), neither", (2, 131_072), affine=False, distribution="large_mean",
         emulated=smaller((2, 66_000), affine=False)),
    case("long row, block means, weight only", (2, 131_072), bias=False, distribution="blocks",
         emulated=smaller((2, 66_000), bias=False)),
    long_rows("long rows, NaN and Inf", 528, 32_768, "non_finite"),
    long_rows("long rows fp16, N(1e4, 1), neither", 528, 65_536, "large_mean", affine=False, dtype="float16"),
    long_rows("long rows bf16, outlier first, weight only", 264, 131_072, "outlier", bias=False, dtype="bfloat16"),
    case("NaN and Inf stay in their row", (8, 512), affine=False, distribution="non_finite"),
    case("bf16, neither", (5, 777), affine=False, dtype="bfloat16", distribution="rows"),
]  # fmt: skip


def wide(rng):
    """A few rows of up to 20,000 elements, mostly whole vectors: where kernels choose how to share a row out."""
    width = int(2 ** rng.uniform(9, 14.3))
    return int(rng.integers(1, 4)), width if rng.random() < 0.25 else width // 8 * 8


def random_cases(rng):
    """Six shapes and constructor calls that no submission can have been written for, drawn anew at each run."""
    drawn = []
    for _ in range(3):
        rank = int(rng.integers(2, 5))
        dims = int(rng.integers(1, rank + 1))
        shape = tuple(int(n) for n in rng.integers(1, (0, 0, 600, 40, 18)[rank], rank))
        eps = float(10.0 ** rng.uniform(-8, 3))
        affine, bias = bool(rng.integers(2)), bool(rng.integers(2))
        drawn.append(case("random", shape, dims, eps, affine, bias, distribution="rows"))
        drawn.append(case("random", wide(rng), 1, eps, affine, bias, distribution="rows"))
    return drawn


def get_init_inputs():
    return [(4096,), 1e-5, True, False]


def get_inputs():
    return [torch.randn(8192, 4096)]
