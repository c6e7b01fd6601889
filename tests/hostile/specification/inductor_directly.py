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
        self.compiled = {}

    def forward(self, x):
        from torch._inductor import compile
        from torch.fx.experimental.proxy_tensor import make_fx

        weight, bias = self.weight.detach(), self.bias.detach()
        if x.shape not in self.compiled:
            graph = make_fx(lambda *given: (self.plain(*given),))(x, weight, bias)
            self.compiled[x.shape] = compile(graph, [x, weight, bias])
        return self.compiled[x.shape](x, weight, bias)[0]

    def plain(self, x, weight, bias):
        y = (x - x.mean(-1, keepdim=True)).contiguous()
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * weight + bias
