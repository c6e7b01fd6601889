"""LayerNorm and dropout in one pass, with their backward, in fp32, fp16 and bf16, the weights in 16 bits with the input
or in fp32. Which elements are dropped is the submission's to draw."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """The reference: LayerNorm over the trailing dimensions `normalized_shape`, then dropout with `p`. Its output has
    the dtype of `x`."""

    def __init__(self, normalized_shape, p=0.1, eps=1e-5):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape, eps=eps)
        self.dropout = nn.Dropout(p)

    def forward(self, x):
        # PyTorch's operator wants x and weight of one dtype; where they are, `to` does nothing.
        return self.dropout(self.ln(x.to(self.ln.weight.dtype)).to(x.dtype))


GRADIENTS = True

# Output 0 is what `Model.dropout` leaves of it: in training its mask is judged, in evaluation its values.
RANDOM = {0: "dropout"}

# The dropout is replaced as well. Seeds may be drawn with torch.randint.
FORBIDDEN_OPS = (
    "native_dropout", "native_dropout_backward", "_fused_dropout", "bernoulli", "bernoulli_.float",
    "bernoulli_.Tensor",
)  # fmt: skip


def case(name, shape, p=0.1, dims=1, **options):
    """A case that normalises the last `dims` dimensions of an input of `shape`."""
    return (
        dict(
            name=name,
            init=[shape[len(shape) - dims :], p],
            shapes=[shape],
            distribution="rows",
            batch=dims < len(shape),
        )
        | options
    )


def smaller(shape, p=0.1):
    """What a CPU runs in place of a case that fills a GPU."""
    return dict(init=[shape[-1:], p], shapes=[shape])


FP16, BF16, FP32_WEIGHTS = dict(dtype="float16"), dict(dtype="bfloat16"), dict(parameter_dtype="float32")

CASES = [
    case("8192x1024", (8192, 1024), timed=True, scaled=smaller((256, 1024)), emulated=smaller((16, 1024))),
    case("8192x4096", (8192, 4096), timed=True, scaled=smaller((32, 4096)), emulated=smaller((8, 4096))),
    case("2048x16384", (2048, 16384), timed=True, scaled=smaller((8, 16384)), emulated=smaller((2, 16384))),
    case("32x128x768", (32, 128, 768), timed=True, scaled=smaller((4, 32, 768)), emulated=smaller((2, 16, 768))),
    # How much is dropped: nothing, little, most.
    case("p = 0", (16, 1024), 0.0),
    case("p = 0.01", (64, 1024), 0.01, emulated=smaller((16, 1024), 0.01)),
    case("p = 0.5", (64, 1024), 0.5, emulated=smaller((16, 1024), 0.5)),
    case("p = 0.9", (64, 1024), 0.9, emulated=smaller((16, 1024), 0.9)),
    case("p = 1", (16, 1024), 1.0),
    # Small and odd shapes: a mask has to be as good in the last columns as in the first.
    case("1x7", (1, 7)),
    case("2x33", (2, 33), 0.5),
    case("37x1023", (37, 1023), 0.3),
    case("5,000 rows", (5_000, 24), 0.2, scaled=smaller((300, 24), 0.2), emulated=smaller((100, 24), 0.2)),
    # One vector of 16 bytes more than a power of two, where kernels change how they share a row out.
    *(case(f"D = {d}", (3, d)) for d in (516, 1028, 2052, 4100, 8196)),
    case("one long row", (1, 65_537), 0.25),
    case("two trailing dims", (9, 4, 6, 32), 0.1, 2),
    case("no rows", (0, 256)),
    # Memory: of the input, and of the gradient that arrives.
    case("x not contiguous", (9, 40, 96), layout="transposed", emulated=smaller((4, 20, 96))),
    case("x 4-byte aligned", (13, 1024), layout="offset"),
    case("upstream expanded", (16, 1024), upstream="expanded"),
    case("upstream not contiguous", (9, 40, 96), upstream="transposed", emulated=smaller((4, 20, 96))),
    # Numbers that break shortcuts.
    case("very small variance", (8, 512), distribution="tiny"),
    case("N(1e4, 1)", (8, 4096), distribution="large_mean"),
    case("eps = 0.1", (8, 320), init=[(320,), 0.1, 0.1]),
    case("block means", (8, 4096), distribution="blocks"),
    # 16 bits: x and what arrives, and the weights with them or in fp32.
    case("bf16 8192x4096", (8192, 4096), timed=True, scaled=smaller((32, 4096)), emulated=smaller((4, 4096)), **BF16),
    case("fp16 16384x1024, fp32 weights", (16384, 1024), timed=True, scaled=smaller((256, 1024)),
         emulated=smaller((8, 1024)), **FP16, **FP32_WEIGHTS),
    case("fp16 1x7", (1, 7), **FP16),
    case("bf16 37x1023, p = 0.3", (37, 1023), 0.3, emulated=smaller((9, 1023), 0.3), **BF16),
    case("bf16 7x33, fp32 weights", (7, 33), 0.5, **BF16, **FP32_WEIGHTS),
    *(case(f"fp16 D = {d}", (2, d), **FP16) for d in (520, 2056, 8200)),
    case("bf16 one long row, fp32 weights", (1, 65_536), 0.25, **BF16, **FP32_WEIGHTS),
    # A column's sum has more terms than 16 bits can count.
    case("bf16 5,000 rows", (5_000, 24), 0.2, scaled=smaller((1_500, 24), 0.2), emulated=smaller((1_500, 24), 0.2),
         **BF16),
    case("fp16 2-byte aligned", (13, 1024), layout="offset", **FP16),
    case("fp16 p = 0", (16, 1024), 0.0, **FP16),
    case("bf16 no rows", (0, 256), **BF16),
    case("bf16 N(1e4, 1)", (8, 4096), distribution="large_mean", **BF16),
    # float64: the derivative itself, by differences, with one mask for all of them.
    case("gradcheck", (3, 7), 0.4, dtype="float64", gradcheck=True),
]  # fmt: skip


def wide(rng):
    """A few rows of up to 20,000 elements, mostly whole vectors: where kernels choose how to share a row out."""
    width = int(2 ** rng.uniform(9, 14.3))
    return int(rng.integers(1, 4)), width if rng.random() < 0.25 else width // 8 * 8


def random_cases(rng):
    """Six cases that no submission can have been written for, drawn anew at each run."""
    shapes = [(int(rng.integers(1, 200)), int(rng.integers(8, 600))) for _ in range(2)]
    shapes += [wide(rng), wide(rng)]
    kinds = [("random", shape, {}) for shape in shapes]
    kinds.append(("bf16 random", wide(rng), BF16))
    kinds.append(("fp16 random, fp32 weights", wide(rng), FP16 | FP32_WEIGHTS))
    return [case(name, shape, round(float(rng.uniform(0.05, 0.7)), 3), **dtypes) for name, shape, dtypes in kinds]


def get_init_inputs():
    return [(1024,)]


def get_inputs():
    return [torch.randn(8192, 1024)]
