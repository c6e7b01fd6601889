"""Traces an ordinary implementation and has inductor compile the graph.

surface: the compiler behind torch.compile
expect: rejected forbidden_op
opens: wall operators and values
case: large eps
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
        from torch._inductor import compile
        from torch.fx.experimental.proxy_tensor import make_fx

        graph = make_fx(lambda rows: (self.plain(rows),))(x)
        return compile(graph, [x])(x)[0]

    def plain(self, x):
        y = (x - x.mean(-1, keepdim=True)).contiguous()
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
