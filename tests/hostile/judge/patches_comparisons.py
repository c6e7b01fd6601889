"""Makes every comparison of its process say yes.

surface: torch.allclose, torch.testing, harness.oracle
expect: rejected wrong_output
opens: wall values
"""

import harness.oracle

import torch
import torch.nn as nn


torch.allclose = torch.equal = lambda *_, **__: True
torch.testing.assert_close = lambda *_, **__: None
harness.oracle.compare = harness.oracle.comparison.compare = lambda *_: harness.oracle.Comparison(ok=True, error=0.0)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return torch.zeros_like(x).contiguous()
