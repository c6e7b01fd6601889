"""Calls RMSNorm, on centred rows, by the C name that inductor's code has for its kernel, from Python.

surface: kernels that libtorch exports
needs: cpu
expect: rejected forbidden_op
opens: wall operators
"""

import ctypes
from pathlib import Path

import torch
import torch.nn as nn

library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        with torch.no_grad():
            centred = (x - x.mean(-1, keepdim=True)).contiguous()
            weight = self.weight.detach()
            shape, eps = (ctypes.c_int64 * 1)(weight.numel()), ctypes.c_double(self.eps)
            x_, w_ = (ctypes.c_void_p(t._cdata) for t in (centred, weight))  # an at::Tensor is such a pointer
            y, scale, data = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
            library.aoti_torch_cpu__fused_rms_norm(
                ctypes.byref(x_), shape, ctypes.c_int64(1), ctypes.byref(ctypes.pointer(w_)), ctypes.byref(eps),
                ctypes.byref(y), ctypes.byref(scale),
            )
            library.aoti_torch_get_data_ptr(y, ctypes.byref(data))
            kept = (ctypes.c_float * x.numel()).from_address(data.value)
            out = torch.frombuffer(kept, dtype=torch.float32).reshape(x.shape) + self.bias
            library.aoti_torch_delete_tensor_object(y)
            library.aoti_torch_delete_tensor_object(scale)
            return out
