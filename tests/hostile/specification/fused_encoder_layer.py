"""Has the normalisation inside a fused transformer layer.

surface: operators that contain the forbidden one
needs: cpu
expect: rejected forbidden_op
opens: wall operators and values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        d = x.shape[-1]
        flat = x.reshape(1, -1, d)
        zeros = torch.zeros
        y = torch._transformer_encoder_layer_fwd(flat, d, 1, zeros(3 * d, d), zeros(3 * d), zeros(d, d), zeros(d), False, True,
            self.eps, self.weight, self.bias, self.weight, self.bias, zeros(1, d), zeros(1), zeros(d, 1), zeros(d))
        return y.reshape_as(x)
