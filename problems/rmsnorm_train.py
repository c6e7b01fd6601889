"""nn.RMSNorm as a training step: the output, and the gradients of the input and the weight. In fp32, fp16 and bf16, the
weight in 16 bits with the input or in fp32."""

import torch
import torch.nn as nn

OPERATOR = "rmsnorm"  # which implementations of others it is compared with


class Model(nn.Module):
    """The reference. Its output has the dtype of `x`, and is contiguous whatever the strides of `x` are."""

    def __init__(self, normalized_shape, eps=1e-6):
        super().__init__()
        self.norm = nn.RMSNorm(normalized_shape, eps=eps)

    def forward(self, x):
        # PyTorch's operator wants x and weight of one dtype; where they are, `to` does nothing.
        return self.norm(x.contiguous().to(self.norm.weight.dtype)).to(x.dtype)


# Judged with its backward, whose sums over rows have to come out the same in every run.
GRADIENTS = True
DETERMINISTIC = True


def case(name, shape, dims=1, eps=1e-6, **options):
    """A case that normalises the last `dims` dimensions of an input of `shape`."""
    return (
        dict(
            name=name,
            init=[shape[len(shape) - dims :], eps],
            shapes=[shape],
            distribution="rows",
            batch=dims < len(shape),
        )
        | options
    )


def few(shape):
    """What the emulator runs in place of what a CPU does: an eighth of the rows, but three at least."""
    return (min(shape[0], max(3, shape[0] // 8)), *shape[1:])


def timed(name, shape, small, **options):
    """A timed case, and the shape that a CPU runs in its place."""
    stand_ins = (dict(init=[small[-1:]], shapes=[stand_in]) for stand_in in (small, few(small)))
    return case(name, shape, timed=True, **dict(zip(("scaled", "emulated"), stand_ins, strict=True)), **options)


FP16, BF16, FP32_WEIGHT = dict(dtype="float16"), dict(dtype="bfloat16"), dict(parameter_dtype="float32")


CASES = [
    timed("8192x1024", (8192, 1024), (256, 1024)),
    timed("8192x4096", (8192, 4096), (32, 4096)),
    timed("2048x16384", (2048, 16384), (8, 16384)),
    timed("16x1048576", (16, 1048576), (2, 65536)),
    timed("32x128x768", (32, 128, 768), (4, 32, 768)),
    # Small and odd shapes.
    case("1x7", (1, 7)),
    case("2x33", (2, 33)),
    case("D = 1", (37, 1)),
    case("D = 769", (19, 769)),
    case("5,000 rows", (5_000, 24), scaled=dict(init=[(24,)], shapes=[(300, 24)])),
    # One vector of 16 bytes more than a power of two, where kernels change how they share a row out.
    *(case(f"D = {d}", (3, d)) for d in (516, 1028, 2052, 4100, 8196)),
    case("long odd rows", (3, 20_001)),
    case("three trailing dims", (6, 5, 12, 32), 3),
    case("no rows", (0, 256)),
    # Memory: of the input, and of the gradient that arrives.
    case("x not contiguous", (9, 40, 96), layout="transposed"),
    case("x 4-byte aligned", (13, 1024), layout="offset"),
    case("upstream expanded", (16, 1024), upstream="expanded"),
    case("upstream not contiguous", (9, 40, 96), upstream="transposed"),
    # Numbers that break shortcuts.
    case("very small", (8, 512), distribution="tiny"),
    case("N(1e4, 1)", (8, 4096), distribution="large_mean"),
    case("outlier", (8, 4096), distribution="outlier"),
    case("eps = 0.1", (8, 320), eps=0.1),
    # 16 bits: x and what arrives, and the weight with them or in fp32.
    timed("bf16 8192x4096", (8192, 4096), (32, 4096), **BF16),
    timed("fp16 16384x1024, fp32 weight", (16384, 1024), (256, 1024), **FP16, **FP32_WEIGHT),
    case("fp16 1x7", (1, 7), **FP16),
    case("bf16 19x1023", (19, 1023), **BF16),
    case("bf16 7x33, fp32 weight", (7, 33), **BF16, **FP32_WEIGHT),
    *(case(f"fp16 D = {d}", (3, d), **FP16) for d in (520, 2056, 8200, 32_776)),
    case("bf16 long odd rows, fp32 weight", (2, 20_001), **BF16, **FP32_WEIGHT),
    case("bf16 one long row, fp32 weight", (1, 65_536), **BF16, **FP32_WEIGHT),
    # A column's sum has more terms than 16 bits can count.
    case("bf16 5,000 rows", (5_000, 24), **BF16, scaled=dict(init=[(24,)], shapes=[(1_500, 24)])),
    case("fp16 2-byte aligned", (13, 1024), layout="offset", **FP16),
    case("bf16 upstream expanded", (16, 1024), upstream="expanded", **BF16),
    case("fp16 no rows", (0, 256), **FP16),
    case("bf16 N(1e4, 1)", (8, 4096), distribution="large_mean", **BF16),
    # float64: the derivative itself, by differences.
    case("gradcheck", (3, 7), dtype="float64", gradcheck=True),
]


def wide(rng):
    """A few rows of up to 20,000 elements, mostly whole vectors: where kernels choose how to share a row out."""
    width = int(2 ** rng.uniform(9, 14.3))
    return int(rng.integers(1, 4)), width if rng.random() < 0.25 else width // 8 * 8


def random_cases(rng):
    """Six shapes that no submission can have been written for, drawn anew at each run."""
    shapes = [(int(rng.integers(1, 200)), int(rng.integers(8, 600))) for _ in range(2)]
    drawn = [case("random", shape) for shape in (*shapes, wide(rng), wide(rng))]
    drawn.append(case("bf16 random", wide(rng), **BF16))
    drawn.append(case("fp16 random, fp32 weight", wide(rng), **FP16, **FP32_WEIGHT))
    return drawn


def get_init_inputs():
    return [(4096,)]


def get_inputs():
    return [torch.randn(8192, 4096)]
