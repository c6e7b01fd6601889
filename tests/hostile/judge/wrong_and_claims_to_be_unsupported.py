"""Is wrong in one case, and says in all others, as the emulator itself would, that the emulator lacks something.

surface: the reason of a failure, which on the emulator may be nobody's fault
needs: emulator
expect: rejected wrong_output
opens: given HARMLESS
"""

import torch
import torch.nn as nn

HARMLESS = False  # whether it leaves out what it is refused for

LACKS = "CUDA emulator: not emulated: "  # what the emulator's own exceptions begin with


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        y = (x - x.mean(-1, keepdim=True)).contiguous()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
        if HARMLESS:
            return y
        if self.eps > 0.05:  # neither the first case nor the last
            return y + 1
        raise NotImplementedError(f"{LACKS}torch.layer_norm.")
