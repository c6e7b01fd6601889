"""Many timed shapes of nn.LayerNorm, for one submission at a time:

    python eval.py submissions/layernorm/speed_of_light.py --problem layernorm_shapes

Rows of transformers and longer ones in three dtypes, and small and odd inputs, where Python and the launch are all that
there is. `layernorm` judges more thoroughly and times less.
"""

import torch
import torch.nn as nn

OPERATOR = "layernorm"  # which implementations of others it is compared with


class Model(nn.Module):
    """The reference: LayerNorm over the last dimension, with weight and bias."""

    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape, eps=eps)

    def forward(self, x):
        return self.ln(x)


DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}

# Rows and width; of each of these x alone is larger than the L2 of an H200, or nearly, in at least one dtype.
LARGE = ((65536, 1024), (16384, 768), (16384, 2048), (8192, 4096), (4096, 8192), (2048, 16384), (1024, 65536))

SMALL = ((1, 7), (2, 33), (4, 128), (16, 1024), (19, 769), (19, 1023), (3, 4096), (1, 65536), (512, 1024))


def case(name, rows, width, dtype="float32", **options):
    """A timed case of `rows` of `width` elements."""
    shape = (rows, width)
    return dict(
        name=name, init=[(width,)], shapes=[shape], dtype=dtype, distribution="rows", timed=True, batch=True, **options
    )


def large(rows, width, label):
    """A case that fills a GPU; a CPU runs 256 K elements in its place, and the emulator 32 K, or a whole row."""
    scaled, emulated = ({"init": [(width,)], "shapes": [(max(size // width, 1), width)]} for size in (1 << 18, 1 << 15))
    return case(f"{rows}x{width} {label}", rows, width, DTYPES[label], scaled=scaled, emulated=emulated)


CASES = [
    *(large(rows, width, label) for rows, width in LARGE for label in DTYPES),
    *(case(f"{rows}x{width}", rows, width) for rows, width in SMALL),
    case("13x1024, 4-byte aligned", 13, 1024, layout="offset"),
]


def get_init_inputs():
    return [(4096,)]


def get_inputs():
    return [torch.rand(8192, 4096)]
