"""The forward that a training step asks for: nn.LayerNorm's output, and each row's mean and inverse deviation."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """The reference: (y, mean, inv_std), with inv_std = 1 / sqrt(variance + eps). The last two have the shape of the
    input without `normalized_shape`."""

    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape, eps=eps)

    def forward(self, x):
        ln, rows = self.ln, x.shape[: x.dim() - len(self.ln.normalized_shape)]
        y, mean, inv_std = torch.native_layer_norm(x, ln.normalized_shape, ln.weight, ln.bias, ln.eps)
        return y, mean.reshape(rows), inv_std.reshape(rows)


def case(name, shape, dims=1, **options):
    """A case that normalises the last `dims` dimensions of an input of `shape`."""
    return dict(name=name, init=[shape[len(shape) - dims :]], shapes=[shape], batch=dims < len(shape)) | options


def smaller(shape, dims=1):
    """What a CPU runs in place of a case that fills a GPU."""
    return dict(init=[shape[len(shape) - dims :]], shapes=[shape])


CASES = [
    # Timed: the headline of `layernorm` and rows of transformers.
    case("headline", (16, 64, 256, 256), 3, distribution="uniform", timed=True, scaled=smaller((16, 64, 16, 16), 3),
         emulated=smaller((4, 64, 16, 16), 3)),
    case("8192x4096", (8192, 4096), distribution="rows", timed=True, scaled=smaller((64, 4096)),
         emulated=smaller((8, 4096))),
    # Edges: what a warp or a block leaves over.
    case("1x7", (1, 7), distribution="rows"),
    case("2x33", (2, 33), distribution="rows"),
    case("4x128", (4, 128), distribution="rows"),
    case("16x1024", (16, 1024), distribution="rows"),
    case("3x4096", (3, 4096), distribution="rows"),
    case("D = 1", (37, 1), distribution="rows"),
    case("D = 769", (19, 769), distribution="rows"),
    case("one row", (1, 65536), distribution="rows"),
    case("three trailing dims", (6, 5, 12, 32), 3, distribution="rows"),
    case("no rows", (0, 256)),
    case("not contiguous", (9, 40, 96), distribution="rows", layout="transposed"),
    case("4-byte aligned", (13, 1024), distribution="rows", layout="offset"),
    # Numbers that break shortcuts.
    case("very small variance", (8, 512), distribution="tiny"),
    case("very large variance", (8, 512), distribution="huge"),
    case("constant rows", (8, 512), distribution="constant"),
    case("N(1e4, 1)", (8, 4096), distribution="large_mean"),
    case("block means", (8, 4096), distribution="blocks"),
    case("eps = 0.1", (8, 320), distribution="rows", init=[(320,), 0.1]),
]  # fmt: skip


def random_cases(rng):
    """Three shapes that no submission can have been written for, drawn anew at each run."""
    shapes = [(int(rng.integers(1, 200)), int(rng.integers(8, 600))) for _ in range(2)]
    shapes.append((int(rng.integers(1, 4)), int(2 ** rng.uniform(9, 14.3))))
    return [case("random", shape, distribution="rows") for shape in shapes]


def get_init_inputs():
    return [(64, 256, 256)]


def get_inputs():
    return [torch.rand(16, 64, 256, 256)]
