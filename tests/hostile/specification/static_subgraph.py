"""Writes a graph with a node of TorchScript's static runtime, whose own operator normalises.

surface: interpreters with operators of their own
needs: cpu
expect: rejected forbidden_op
opens: wall operators
"""

import torch
import torch.nn as nn

SUBGRAPH = """graph(%x : Tensor, %w : Tensor, %b : Tensor):
  %s : int = prim::Constant[value=WIDTH]()
  %l : int[] = prim::ListConstruct(%s)
  %e : float = prim::Constant[value=EPS]()
  %t : bool = prim::Constant[value=0]()
  %y : Tensor = aten::layer_norm(%x, %l, %w, %b, %e, %t)
  return (%y)
"""


def static(width, eps):
    graph = torch._C.Graph()
    node = graph.create("prim::StaticSubgraph", [graph.addInput() for _ in range(3)], 1)
    node.g_("Subgraph", torch._C.parse_ir(SUBGRAPH.replace("WIDTH", str(width)).replace("EPS", repr(eps))))
    graph.appendNode(node)
    graph.registerOutput(next(node.outputs()))
    return torch._C._create_function_from_graph("f", graph)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        run = static(self.weight.numel(), self.eps)
        with torch.inference_mode(False), torch.no_grad():
            return run(x.contiguous(), self.weight.detach(), self.bias.detach()).clone()
