"""nn.LayerNorm as a training step in fp16 and bf16, with weights of that type or fp32: the output, and the gradients of
the input, the weight and the bias. `layernorm_train` has more shapes, and fp32."""

import torch
import torch.nn as nn

OPERATOR = "layernorm"  # which implementations of others it is compared with


class Model(nn.Module):
    """The reference: LayerNorm over the trailing dimensions `normalized_shape`, with weight and bias."""

    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape, eps=eps)

    def forward(self, x):
        # PyTorch's CUDA operator wants x and weight of one dtype; where they are, `to` does nothing.
        return self.ln(x.to(self.ln.weight.dtype)).to(x.dtype)


# Judged with its backward, whose sums over rows have to come out the same in every run.
GRADIENTS = True
DETERMINISTIC = True

DTYPES = {"fp16": "float16", "bf16": "bfloat16"}


def case(name, shape, dims=1, distribution="rows", **options):
    """A case that normalises the last `dims` dimensions of `shape`, in the dtype that `name` begins with."""
    return dict(name=name, init=[shape[len(shape) - dims :]], shapes=[shape], batch=dims < len(shape),
                distribution=distribution, dtype=DTYPES[name[:4]], **options)  # fmt: skip


def smaller(shape, dims=1):
    """What a CPU runs in place of a case that fills a GPU."""
    return dict(init=[shape[len(shape) - dims :]], shapes=[shape])


FP32_WEIGHTS = dict(parameter_dtype="float32")

CASES = [
    # Timed: the shapes of transformers.
    case("bf16 rows of 4096", (8192, 4096), timed=True, scaled=smaller((64, 4096)), emulated=smaller((8, 4096))),
    case("fp16 rows of 1024", (16384, 1024), timed=True, scaled=smaller((256, 1024)), emulated=smaller((16, 1024))),
    case("bf16 rows of 768, fp32 weights", (16384, 768), timed=True, scaled=smaller((256, 768)),
         emulated=smaller((16, 768)), **FP32_WEIGHTS),
    # Small and odd shapes.
    case("fp16, 1x7", (1, 7)),
    case("bf16, odd", (19, 1023)),
    case("bf16, D = 1", (37, 1)),
    case("bf16, three trailing dims", (6, 5, 12, 32), 3),
    case("fp16, long row", (2, 64, 33, 32), 3),
    case("bf16, long odd rows", (2, 20_001)),
    case("fp16, no rows", (0, 256)),
    # One vector of 16 bytes more than a power of two, where kernels change how they share a row out.
    *(case(f"fp16, D = {d}", (3, d)) for d in (520, 2056, 8200)),
    # A column's sum has more terms than 16 bits can count.
    *(case(f"{label}, 5,000 rows", (5_000, 24), scaled=smaller((1_500, 24)), emulated=smaller((2_500, 24)))
      for label in DTYPES),
    # Weights may be fp32 beside 16-bit values, and so are their gradients.
    case("fp16, fp32 weights", (16, 1024), **FP32_WEIGHTS),
    case("fp16, fp32 weights, odd", (7, 33), **FP32_WEIGHTS),
    case("bf16, long row, fp32 weights", (2, 64, 33, 32), 3, **FP32_WEIGHTS),
    # Memory: of the input, and of the gradient that arrives.
    case("fp16, 2-byte aligned", (13, 1024), layout="offset"),
    case("bf16, not contiguous", (9, 40, 96), layout="transposed"),
    case("bf16, upstream expanded", (16, 1024), upstream="expanded"),
    case("fp16, upstream not contiguous", (9, 40, 96), upstream="transposed"),
    # Numbers that break shortcuts.
    case("fp16, N(1e4, 1)", (8, 4096), distribution="large_mean"),
    case("bf16, constant rows", (8, 512), distribution="constant"),
    case("fp16, eps = 0.1", (8, 320)) | dict(init=[(320,), 0.1]),
    # float64: the derivative itself, by differences.
    dict(name="gradcheck", init=[(7,)], shapes=[(3, 7)], batch=True, dtype="float64", gradcheck=True),
]  # fmt: skip


def wide(rng):
    """A few rows of up to 20,000 elements, mostly whole vectors: where kernels choose how to share a row out."""
    width = int(2 ** rng.uniform(9, 14.3))
    return int(rng.integers(1, 4)), width if rng.random() < 0.25 else width // 8 * 8


def random_cases(rng):
    """Six shapes that no submission can have been written for, drawn anew at each run."""
    drawn = [case(label, (int(rng.integers(1, 200)), int(rng.integers(8, 600)))) for label in DTYPES]
    for weights in ({}, FP32_WEIGHTS):
        drawn += [case(label, wide(rng), **weights) for label in DTYPES]
    return drawn


def get_init_inputs():
    return [(4096,)]


def get_inputs():
    return [torch.rand(8192, 4096, dtype=torch.bfloat16)]
