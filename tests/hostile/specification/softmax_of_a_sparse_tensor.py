"""Asks for the logarithm of softmax of a sparse tensor that has all elements.

surface: relatives of the operator
problem: corpus_softmax
needs: cpu
expect: rejected forbidden_op
opens: wall operators
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        at = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).T
        full = torch.sparse_coo_tensor(at, x.reshape(-1), x.shape, is_coalesced=True)
        return torch.sparse.log_softmax(full, 1).to_dense().exp()
