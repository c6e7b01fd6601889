"""nn.RMSNorm as a training step: the output, and the gradients of the input and the weight."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """The reference. Its output is contiguous whatever the strides of `x` are."""

    def __init__(self, normalized_shape, eps=1e-6):
        super().__init__()
        self.norm = nn.RMSNorm(normalized_shape, eps=eps)

    def forward(self, x):
        return self.norm(x.contiguous())


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


def timed(name, shape, small):
    """A timed case, and the shape that a CPU runs in its place."""
    stand_ins = (dict(init=[small[-1:]], shapes=[stand_in]) for stand_in in (small, few(small)))
    return case(name, shape, timed=True, **dict(zip(("scaled", "emulated"), stand_ins, strict=True)))


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
    # float64: the derivative itself, by differences.
    case("gradcheck", (3, 7), dtype="float64", gradcheck=True),
]


def wide(rng):
    """A few rows of up to 20,000 elements, mostly whole vectors: where kernels choose how to share a row out."""
    width = int(2 ** rng.uniform(9, 14.3))
    return int(rng.integers(1, 4)), width if rng.random() < 0.25 else width // 8 * 8


def random_cases(rng):
    """Four shapes that no submission can have been written for, drawn anew at each run."""
    shapes = [(int(rng.integers(1, 200)), int(rng.integers(8, 600))) for _ in range(2)]
    return [case("random", shape) for shape in (*shapes, wide(rng), wide(rng))]


def get_init_inputs():
    return [(4096,)]


def get_inputs():
    return [torch.randn(8192, 4096)]
