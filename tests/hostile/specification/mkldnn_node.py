"""Has TorchScript's own LayerNorm for tensors in oneDNN's layout do the work.

surface: operators of TorchScript's interpreter, which never ask the dispatcher
needs: cpu
expect: rejected forbidden_op
opens: wall operators
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
        n = self.weight.numel()
        rows, weight, bias = (t.detach().to_mkldnn() for t in (x.reshape(1, -1, n), self.weight, self.bias))
        y = torch.ops.prim.MKLDNNLayerNorm(rows, [n], weight, bias, self.eps, True)
        return y.to_dense().reshape(x.shape)
