"""Puts F.layer_norm's node of a scripted graph into a subgraph of TorchScript's static runtime, and interprets that.

surface: operators of TorchScript that hold a graph
needs: cpu
expect: rejected raised
opens: wall operators
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/utils/subgraph_utils.h>
#include <torch/csrc/utils/pybind.h>
void move(std::shared_ptr<torch::jit::Graph> graph) {
  for (torch::jit::Node* node : graph->nodes())
    if (node->kind() == c10::Symbol::fromQualString("aten::layer_norm")) {
      torch::jit::SubgraphUtils::createSingletonSubgraph(node, c10::Symbol::fromQualString("prim::StaticSubgraph"));
      return;
    }
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("move", &move); }
"""
extension = load_inline(name="subgraph_of_one_node", cpp_sources=SOURCE, no_implicit_headers=True)


@torch.jit.script
def layer_norm(x, shape: list[int], w, b, eps: float):
    return torch.layer_norm(x, shape, w, b, eps, False)


graph = layer_norm.graph.copy()
extension.move(graph)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        with torch.no_grad():
            shape = list(self.weight.shape)
            return torch._C._jit_interpret_graph(graph, (x.detach().contiguous(), shape, self.weight.detach(), self.bias.detach(), self.eps)).clone()
