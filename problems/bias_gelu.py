"""Bias and GELU: `gelu(x + bias)` with the bias along the last dimension, in the exact and in the tanh form."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """The reference; `approximate` is that of `nn.GELU`: 'none' or 'tanh'. Its output is contiguous."""

    def __init__(self, features, approximate="none"):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))
        self.approximate = approximate

    def forward(self, x):
        return F.gelu((x + self.bias).contiguous(), approximate=self.approximate)


# What the submission replaces; sums, products and tensors are PyTorch's own to use.
FORBIDDEN_OPS = ("gelu", "gelu_", "gelu.out")


def case(name, shape, approximate="none", **options):
    return dict(name=name, init=[shape[-1], approximate], shapes=[shape], batch=len(shape) > 1, **options)


def few(shape):
    """What the emulator runs in place of what a CPU does: an eighth of the rows, but three at least."""
    return (min(shape[0], max(3, shape[0] // 8)), *shape[1:])


def timed(name, shape, small, approximate="none", **options):
    """A timed case, and the shape that a CPU runs in its place."""
    stand_ins = dict(scaled=dict(shapes=[small]), emulated=dict(shapes=[few(small)]))
    return case(name, shape, approximate, timed=True, **stand_ins, **options)


def both(name, shape, **options):
    """The same case in both forms: each shape has to be right in each."""
    return [case(f"{name}, {form}", shape, form, **options) for form in ("none", "tanh")]


CASES = [
    # The hidden layer of a transformer's MLP is four times as wide as the model.
    timed("8192x4096", (8192, 4096), (64, 4096)),
    timed("8192x4096 tanh", (8192, 4096), (64, 4096), "tanh"),
    timed("8192x16384 bf16", (8192, 16384), (16, 16384), dtype="bfloat16"),
    timed("8192x16384 bf16 tanh", (8192, 16384), (16, 16384), "tanh", dtype="bfloat16"),
    timed("16384x5120 fp16", (16384, 5120), (32, 5120), dtype="float16"),
    timed("32x128x3072", (32, 128, 3072), (2, 32, 3072)),
    # Small and odd shapes.
    *both("1x7", (1, 7)),
    *both("2x33", (2, 33)),
    *both("a vector", (640,)),
    *both("37x1", (37, 1)),
    *both("19x1023", (19, 1023)),
    *both("19x1023 fp16", (19, 1023), dtype="float16"),
    *both("19x1023 bf16", (19, 1023), dtype="bfloat16"),
    *both("five dims", (3, 2, 5, 7, 24)),
    case("one row", (1, 65_537)),
    case("one long row bf16", (1, 262_144), dtype="bfloat16"),
    case("70,000 rows", (70_000, 24), scaled=dict(shapes=[(800, 24)])),
    case("no rows", (0, 256)),
    # Memory.
    *both("not contiguous", (9, 40, 96), layout="transposed"),
    case("not contiguous bf16", (9, 40, 96), layout="transposed", dtype="bfloat16"),
    *both("4-byte aligned", (13, 1024), layout="offset"),
    *both("2-byte aligned fp16", (13, 1024), layout="offset", dtype="float16"),
    # Numbers: far out the answer is x or 0, whatever overflows on the way.
    *both("rows of all scales", (64, 512), distribution="rows"),
    *both("N(1e4, 1)", (8, 512), distribution="large_mean"),
    *both("N(1e4, 1) fp16", (8, 512), distribution="large_mean", dtype="float16"),
    *both("outlier", (8, 512), distribution="outlier"),
    *both("tiny", (8, 512), distribution="tiny"),
    *both("N(-5, 0.5) fp16", (8, 512), distribution="negative", dtype="float16"),
    *both("N(-5, 0.5) bf16", (8, 512), distribution="negative", dtype="bfloat16"),
    *both("NaN and Inf stay where they are", (8, 512), distribution="non_finite"),
]


def wide(rng):
    """A few rows of up to 20,000 elements, mostly whole vectors: where kernels choose how to share a row out."""
    width = int(2 ** rng.uniform(9, 14.3))
    return int(rng.integers(1, 4)), width if rng.random() < 0.25 else width // 8 * 8


def random_cases(rng):
    """Six shapes that no submission can have been written for, drawn anew at each run."""
    drawn = []
    for dtype in ("float32", "float16", "bfloat16"):
        rank = int(rng.integers(2, 5))
        shape = tuple(int(n) for n in rng.integers(1, (0, 0, 600, 40, 18)[rank], rank))
        form = ("none", "tanh")[int(rng.integers(2))]
        drawn.append(case("random", shape, form, dtype=dtype))
        drawn.append(case("random", wide(rng), form, dtype=dtype))
    return drawn


def get_init_inputs():
    return [4096, "none"]


def get_inputs():
    return [torch.randn(8192, 4096)]
