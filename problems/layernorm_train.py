"""nn.LayerNorm as a training step: the output, and the gradients of the input, the weight and the bias."""

import torch
import torch.nn as nn

OPERATOR = "layernorm"  # which implementations of others it is compared with


class Model(nn.Module):
    """The reference: LayerNorm over the trailing dimensions `normalized_shape`, with weight and bias."""

    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape, eps=eps)

    def forward(self, x):
        return self.ln(x)


# Judged with its backward, whose sums over rows have to come out the same in every run.
GRADIENTS = True
DETERMINISTIC = True


def case(name, shape, dims=1, **options):
    """A case that normalises the last `dims` dimensions of an input of `shape`."""
    return dict(name=name, init=[shape[len(shape) - dims :]], shapes=[shape], batch=dims < len(shape)) | options


def smaller(shape, dims=1):
    """What a CPU runs in place of a case that fills a GPU."""
    return dict(init=[shape[len(shape) - dims :]], shapes=[shape])


HEADLINE = (16, 64, 256, 256)

CASES = [
    # Timed: the headline of `layernorm` and the shapes of transformers.
    case("headline", HEADLINE, 3, distribution="uniform", timed=True, scaled=smaller((16, 64, 16, 16), 3),
         emulated=smaller((4, 64, 16, 16), 3)),
    case("8192x1024", (8192, 1024), distribution="rows", timed=True, scaled=smaller((256, 1024)),
         emulated=smaller((16, 1024))),
    case("8192x4096", (8192, 4096), distribution="rows", timed=True, scaled=smaller((64, 4096)),
         emulated=smaller((8, 4096))),
    case("2048x16384", (2048, 16384), distribution="rows", timed=True, scaled=smaller((16, 16384)),
         emulated=smaller((2, 16384))),
    case("32x128x768", (32, 128, 768), distribution="rows", timed=True, scaled=smaller((4, 64, 768)),
         emulated=smaller((2, 24, 768))),
    # Small and odd shapes.
    case("1x7", (1, 7), distribution="rows"),
    case("2x33", (2, 33), distribution="rows"),
    case("4x128", (4, 128), distribution="rows"),
    case("16x1024", (16, 1024), distribution="rows"),
    case("3x4096", (3, 4096), distribution="rows"),
    case("D = 1", (37, 1), distribution="rows"),
    case("D = 769", (19, 769), distribution="rows"),
    # One vector of 16 bytes more than a power of two, where kernels change how they share a row out.
    *(case(f"D = {d}", (3, d), distribution="rows") for d in (516, 1028, 2052, 4100, 8196)),
    case("one row", (1, 65536), distribution="rows"),
    case("long odd rows", (3, 20_001), distribution="rows", emulated=smaller((2, 20_001))),
    case("5,000 rows", (5_000, 24), distribution="rows", scaled=smaller((300, 24))),
    case("three trailing dims", (6, 5, 12, 32), 3, distribution="rows"),
    case("no rows", (0, 256)),
    # Memory: of the input, and of the gradient that arrives.
    case("x not contiguous", (9, 40, 96), distribution="rows", layout="transposed"),
    case("x 4-byte aligned", (13, 1024), distribution="rows", layout="offset"),
    case("upstream expanded", (16, 1024), distribution="rows", upstream="expanded"),
    case("upstream not contiguous", (9, 40, 96), distribution="rows", upstream="transposed"),
    # Numbers that break shortcuts.
    case("very small variance", (8, 512), distribution="tiny"),
    case("very large variance", (8, 512), distribution="huge"),
    case("constant rows", (8, 512), distribution="constant"),
    case("N(1e4, 1)", (8, 4096), distribution="large_mean"),
    case("block means", (8, 4096), distribution="blocks"),
    case("eps = 0.1", (8, 320), distribution="rows", init=[(320,), 0.1]),
    # float64: the derivative itself, by differences.
    case("gradcheck", (3, 7), dtype="float64", gradcheck=True),
]  # fmt: skip


def wide(rng):
    """A few rows of up to 20,000 elements, mostly whole vectors: where kernels choose how to share a row out."""
    width = int(2 ** rng.uniform(9, 14.3))
    return int(rng.integers(1, 4)), width if rng.random() < 0.25 else width // 8 * 8


def random_cases(rng):
    """Four shapes that no submission can have been written for, drawn anew at each run."""
    shapes = [(int(rng.integers(1, 200)), int(rng.integers(8, 600))) for _ in range(2)]
    shapes += [wide(rng), wide(rng)]
    return [case("random", shape, distribution="rows") for shape in shapes]


def get_init_inputs():
    return [HEADLINE[1:]]


def get_inputs():
    return [torch.rand(*HEADLINE)]
