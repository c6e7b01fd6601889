"""nn.RMSNorm: rows divided by the root of their mean square, times a weight; no mean is taken off."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """The reference. Its output is contiguous whatever the strides of `x` are."""

    def __init__(self, normalized_shape, eps=1e-6):
        super().__init__()
        self.norm = nn.RMSNorm(normalized_shape, eps=eps)

    def forward(self, x):
        return self.norm(x.contiguous())


def case(name, shape, dims=1, eps=1e-6, **options):
    """A case that normalises the last `dims` dimensions of an input of `shape`."""
    return dict(name=name, init=[shape[len(shape) - dims :], eps], shapes=[shape], batch=dims < len(shape), **options)


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


CASES = [
    # The widths of language models, and a few rows that only many blocks to a row can fill a GPU with.
    timed("8192x4096", (8192, 4096), (64, 4096)),
    timed("8192x4096 bf16", (8192, 4096), (64, 4096), dtype="bfloat16"),
    timed("4096x8192 fp16", (4096, 8192), (32, 8192), dtype="float16"),
    timed("2048x16384 bf16", (2048, 16384), (16, 16384), dtype="bfloat16"),
    timed("32x1048576 bf16", (32, 1048576), (4, 131072), dtype="bfloat16"),
    timed("32x128x768", (32, 128, 768), (2, 128, 768)),
    # Trailing dimensions.
    case("one trailing dim", (6, 5, 4, 128), distribution="rows"),
    case("two trailing dims", (6, 5, 12, 32), 2, distribution="rows"),
    case("all dims", (4, 3, 50), 3),
    # Small and odd shapes.
    case("1x7", (1, 7), distribution="rows"),
    case("2x33", (2, 33), distribution="rows"),
    case("D = 1", (37, 1), distribution="rows"),
    case("D = 769", (19, 769), distribution="rows"),
    case("D = 1023", (19, 1023), distribution="rows"),
    case("D = 1023 fp16", (19, 1023), distribution="rows", dtype="float16"),
    # One vector of 16 bytes more than a power of two, where kernels change how they share a row out.
    *(case(f"D = {d}", (3, d), distribution="rows") for d in (516, 1028, 2052, 4100, 8196)),
    *(case(f"D = {d} fp16", (3, d), distribution="rows", dtype="float16") for d in (2056, 4104, 8200)),
    case("one row", (1, 65536), distribution="rows"),
    case("long odd row", (2, 40_001), distribution="rows"),
    case("70,000 rows", (70_000, 24), distribution="rows", scaled=smaller((800, 24))),
    case("no rows", (0, 256)),
    # Memory.
    case("not contiguous", (9, 40, 96), distribution="rows", layout="transposed"),
    case("not contiguous bf16", (9, 40, 96), distribution="rows", layout="transposed", dtype="bfloat16"),
    case("4-byte aligned", (13, 1024), distribution="rows", layout="offset"),
    case("2-byte aligned fp16", (13, 1024), distribution="rows", layout="offset", dtype="float16"),
    # Numbers that break shortcuts: a sum of squares has to be fp32 for 16-bit values, whose squares overflow.
    case("N(1e4, 1)", (8, 4096), distribution="large_mean"),
    case("N(1e4, 1) fp16", (8, 4096), distribution="large_mean", dtype="float16"),
    case("N(1000, 0.1) bf16", (8, 4096), distribution="narrow", dtype="bfloat16"),
    case("outlier first", (8, 4096), distribution="outlier"),
    case("block means", (2, 131_072), distribution="blocks", emulated=smaller((2, 66_000))),
    case("constant rows", (8, 512), distribution="constant"),
    case("subnormal squares", (8, 512), distribution="tiny"),
    # No case has infinities: PyTorch's own answer for a row with one is NaN on a GPU and zero on a CPU.
    # eps stands under the root.
    case("eps = 0", (8, 320), eps=0.0, distribution="rows"),
    case("eps = 0.1", (8, 320), eps=0.1, distribution="rows"),
    case("eps = 100", (8, 320), eps=100.0, distribution="rows"),
    case("eps = 0.1 bf16", (8, 320), eps=0.1, distribution="rows", dtype="bfloat16"),
    case("zeros fp16", (8, 512), distribution="tiny", dtype="float16"),
    # normalized_shape may be an int.
    case("an int", (8, 320), distribution="rows") | dict(init=[320, 1e-6]),
]  # fmt: skip


def wide(rng):
    """A few rows of up to 20,000 elements, mostly whole vectors: where kernels choose how to share a row out."""
    width = int(2 ** rng.uniform(9, 14.3))
    return int(rng.integers(1, 4)), width if rng.random() < 0.25 else width // 8 * 8


def random_cases(rng):
    """Six shapes that no submission can have been written for, drawn anew at each run."""
    drawn = []
    for dtype in ("float32", "float16", "bfloat16"):
        rank = int(rng.integers(2, 5))
        dims = int(rng.integers(1, rank + 1))
        shape = tuple(int(n) for n in rng.integers(1, (0, 0, 600, 40, 18)[rank], rank))
        drawn.append(case("random", shape, dims, distribution="rows", dtype=dtype))
        drawn.append(case("random", wide(rng), distribution="rows", dtype=dtype))
    return drawn


def get_init_inputs():
    return [(4096,)]


def get_inputs():
    return [torch.randn(8192, 4096)]
