"""A thread watches the inputs that were seen so far and computes their results before they are asked for.

surface: inputs that can be seen before a round begins
needs: timing
expect: rejected wrong_when_timed|wrong_when_called_again
opens: wall timed values, beside, called again
"""

import threading
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.seen = {}
        self.eps = eps

    def compute(self, x):
        y = (x - x.mean(-1, keepdim=True)).contiguous()
        scale = torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return y * scale * self.weight + self.bias

    def watch(self):
        while True:
            for key, (x, old, _) in list(self.seen.items()):
                corner = x.view(-1)[:16].clone()
                if not torch.equal(corner, old):
                    time.sleep(0.002)  # until the rest has been written too
                    self.seen[key] = (x, corner, self.compute(x))
            time.sleep(0.0005)

    def forward(self, x):
        if not self.seen:
            threading.Thread(target=self.watch, daemon=True).start()
        if x.data_ptr() not in self.seen:
            self.seen[x.data_ptr()] = (x, x.view(-1)[:16].clone(), self.compute(x))
        return self.seen[x.data_ptr()][2].clone()
