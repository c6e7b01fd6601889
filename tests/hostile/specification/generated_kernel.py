"""Has TorchScript generate a kernel of a graph with GELU, and runs it itself.

problem: corpus_gelu
surface: generators of kernels, which never ask the dispatcher
needs: cpu
expect: rejected forbidden_op
opens: wall operators
"""

import torch
import torch.nn as nn

TEXT = """
def gelu(x: Tensor):
    return torch._C._nn.gelu(x, approximate='{}')
"""


class ModelNew(nn.Module):
    def __init__(self, approximate):
        super().__init__()
        self.text = TEXT.format(approximate)

    def forward(self, x):
        torch._C._jit_set_te_must_use_llvm_cpu(False)
        graph = torch.jit.CompilationUnit(self.text).gelu.graph
        torch._C._te.annotate_input_shapes(graph, [x])
        torch._C._jit_pass_propagate_shapes_on_graph(graph)
        return torch._C._te.TensorExprKernel(graph).run((x,))
