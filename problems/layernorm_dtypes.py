"""nn.LayerNorm in fp16, bf16 and fp64, with weights of that type or, beside 16-bit values, fp32; and a little fp32, for
kernels that choose by dtype. `layernorm` has more shapes, and only fp32."""

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


DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}


def case(name, shape, dims=1, distribution="rows", **options):
    """A case that normalises the last `dims` dimensions of `shape`, in the dtype that `name` begins with."""
    return dict(name=name, init=[shape[len(shape) - dims :]], shapes=[shape], batch=dims < len(shape),
                distribution=distribution, dtype=DTYPES[name[:4]], **options)  # fmt: skip


def smaller(shape, dims=1):
    """What a CPU runs in place of a case that fills a GPU."""
    return dict(init=[shape[len(shape) - dims :]], shapes=[shape])


def long_rows(name, rows, width, distribution="rows", **options):
    """Rows of whole slices of 128 KB, which kernels spread over blocks; a CPU and the emulator run two shorter ones."""
    small = smaller((2, 66_000))
    return case(name, (rows, width), distribution=distribution, scaled=small, emulated=small, **options)


FP32_WEIGHTS = dict(parameter_dtype="float32")

CASES = [
    # Timed: the shapes of transformers.
    case("bf16 rows of 4096", (8192, 4096), timed=True, scaled=smaller((256, 4096)), emulated=smaller((8, 4096))),
    case("fp16 rows of 1024", (16384, 1024), timed=True, scaled=smaller((512, 1024)), emulated=smaller((16, 1024))),
    # One vector of 16 bytes more than a power of two, where kernels change how they share a row out.
    *(case(f"fp16, D = {d}", (3, d)) for d in (2056, 4104, 8200)),
    # Sums are fp32 for 16-bit values.
    case("fp16, odd", (19, 1023)),
    case("bf16, odd", (19, 1023)),
    case("fp16, N(1e4, 1)", (8, 4096), distribution="large_mean"),
    case("bf16, three trailing dims", (6, 5, 12, 32), 3),
    case("fp16, no rows", (0, 256)),
    case("fp16, zeros", (8, 512), distribution="tiny"),
    case("bf16, eps = 0.1", (8, 320)) | dict(init=[(320,), 0.1]),
    case("bf16, NaN and Inf stay in their row", (8, 512), distribution="non_finite"),
    # Weights may be fp32 beside 16-bit values.
    case("fp16, fp32 weights", (16, 1024), **FP32_WEIGHTS),
    case("bf16, fp32 weights", (6, 5, 12, 32), 2, **FP32_WEIGHTS),
    case("fp16, fp32 weights, odd", (7, 33), **FP32_WEIGHTS),
    case("bf16, long row, fp32 weights", (2, 64, 33, 32), 3, **FP32_WEIGHTS),
    # As many as fill a GPU four times, and fewer.
    long_rows("fp16, long rows, N(1e4, 1)", 528, 65_536, "large_mean"),
    long_rows("bf16, long rows, outlier first", 264, 131_072, "outlier"),
    long_rows("bf16, long rows, NaN and Inf", 528, 65_536, "non_finite"),
    long_rows("fp16, fewer long rows", 40, 65_536),
    long_rows("bf16, long rows, fp32 weights, outlier first", 140, 65_536, "outlier", **FP32_WEIGHTS),
    # Memory: what a view of a batch looks like.
    case("fp16, 2-byte aligned", (13, 1024), layout="offset"),
    case("bf16, not contiguous", (9, 40, 96), layout="transposed"),
    # 64 bits, and 32 beside them.
    case("fp64", (16, 1024)),
    case("fp64, odd", (5, 333)),
    case("fp64, long row, N(1e4, 1)", (2, 64, 33, 32), 3, distribution="large_mean"),
    case("fp32", (16, 1024)),
    case("fp32, odd", (19, 1023)),
    case("fp32, N(1e4, 1)", (8, 4096), distribution="large_mean"),
]


def wide(rng):
    """A few rows of up to 20,000 elements, mostly whole vectors: where kernels choose how to share a row out."""
    width = int(2 ** rng.uniform(9, 14.3))
    return int(rng.integers(1, 4)), width if rng.random() < 0.25 else width // 8 * 8


def random_cases(rng):
    """Seven shapes that no submission can have been written for, drawn anew at each run."""
    drawn = []
    for label in ("fp16", "bf16", "fp64"):
        rank = int(rng.integers(2, 5))
        dims = int(rng.integers(1, rank + 1))
        shape = tuple(int(n) for n in rng.integers(1, (0, 0, 600, 40, 18)[rank], rank))
        drawn.append(case(label, shape, dims))
    for weights in ({}, FP32_WEIGHTS):
        drawn += [case(label, wide(rng), **weights) for label in ("fp16", "bf16")]
    return drawn


def get_init_inputs():
    return [(4096,)]


def get_inputs():
    return [torch.rand(8192, 4096, dtype=torch.bfloat16)]
