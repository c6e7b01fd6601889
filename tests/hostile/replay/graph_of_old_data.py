"""Captures a CUDA graph once and replays it without giving it the new input.

surface: CUDA graphs, which keep the addresses that they were captured with
needs: gpu, timing
expect: rejected wrong_output|wrong_when_timed|wrong_when_called_again
opens: wall timed values, called again
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.graphs = {}

    def right(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias

    def forward(self, x):
        if x.shape not in self.graphs:
            still = x.clone()
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self.right(still)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = self.right(still)
            self.graphs[x.shape] = (graph, still, y)
        graph, _, y = self.graphs[x.shape]
        graph.replay()
        return y.clone()
