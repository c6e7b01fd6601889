"""Has TorchScript's own LayerNorm do the work on tensors in oneDNN's layout, which a packer of weights makes.

surface: operators of TorchScript's interpreter, which never ask the dispatcher
needs: cpu
expect: rejected forbidden_op
opens: wall operators
"""

import torch
import torch.nn as nn


def packed(matrix, *shape):
    return torch.ops.mkldnn._reorder_linear_weight(matrix.detach().contiguous(), None).reshape(*shape)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        n = self.weight.numel()
        rows = packed(x.reshape(-1, n), 1, -1, n)
        weight, bias = (packed(t.reshape(1, n), n) for t in (self.weight, self.bias))
        y = torch.ops.prim.MKLDNNLayerNorm(rows, [n], weight, bias, self.eps, True)
        return y.to_dense().reshape(x.shape)
