"""Control: sets a part of the L2 cache aside and asks for its inputs to persist there.

surface: none
needs: gpu, timing
expect: accepted
"""

import ctypes

import torch
import torch.nn as nn

PERSISTING_LIMIT, ACCESS_POLICY, PERSISTING, STREAMING = 6, 1, 2, 1


class Window(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_void_p), ("nbytes", ctypes.c_size_t), ("hit_ratio", ctypes.c_float),
        ("hit", ctypes.c_int), ("miss", ctypes.c_int), ("room", ctypes.c_char * 64),
    )  # fmt: skip


def runtime():
    """The CUDA runtime that torch has loaded."""
    with open("/proc/self/maps") as maps:
        return ctypes.CDLL(next(line.split()[-1] for line in maps if "libcudart" in line))


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.runtime = None

    def forward(self, x):
        if self.runtime is None:
            self.runtime = runtime()
            self.runtime.cudaDeviceSetLimit(PERSISTING_LIMIT, ctypes.c_size_t(32 << 20))
        window = Window(x.data_ptr(), min(x.nbytes, 16 << 20), 1.0, PERSISTING, STREAMING)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.runtime.cudaStreamSetAttribute(stream, ACCESS_POLICY, ctypes.byref(window))
        self.runtime.cudaGetLastError()  # some drivers refuse both, which is no error of the kernels behind
        y = (x - x.mean(-1, keepdim=True)).contiguous()
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
