"""Makes tensors of oneDNN's layout by libtorch's stable C interface, for TorchScript's LayerNorm of that layout.

surface: functions of libtorch that Python calls by ctypes
needs: cpu
expect: rejected raised
opens: wall operators
"""

import ctypes
import struct
from pathlib import Path

import torch
import torch.nn as nn

lib = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"))
make = lib.aoti_torch_create_tensor_from_blob_v2
make.restype = ctypes.c_int32
P, I = ctypes.c_void_p, ctypes.c_int64


def wrap(x):
    """As mkldnn::_get_mkldnn_serialized_md writes the form of a dense tensor in fp32."""
    words = bytearray(772)
    sizes, strides = list(x.shape), list(x.stride())
    struct.pack_into(f"<ii{x.dim()}q", words, 0, 1, x.dim(), *sizes)
    struct.pack_into("<q", words, 104, 3)  # f32
    struct.pack_into(f"<{x.dim()}q", words, 112, *sizes)
    struct.pack_into(f"<q{x.dim()}q", words, 312, 8301100253252157442, *strides)
    opaque = (ctypes.c_uint8 * len(words)).from_buffer(words)
    shape, stride = (I * x.dim())(*sizes), (I * x.dim())(*strides)
    made = P()
    mkldnn = 3  # c10::Layout::Mkldnn
    if make(P(x.data_ptr()), I(x.dim()), shape, stride, I(0), 6, 0, -1, ctypes.byref(made), mkldnn, opaque, I(len(words))):
        raise RuntimeError("no tensor")
    return torch.Tensor(cdata=P.from_address(made.value).value)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        n = self.weight.numel()
        dense = [x.detach().reshape(1, -1, n).contiguous(), self.weight.detach().reshape(-1), self.bias.detach().reshape(-1)]
        rows, weight, bias = map(wrap, dense)
        return torch.ops.prim.MKLDNNLayerNorm(rows, [n], weight, bias, self.eps, False).to_dense().reshape(x.shape)
