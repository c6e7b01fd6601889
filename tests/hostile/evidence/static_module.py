"""Has TorchScript's static runtime, from C++, run a graph that normalises.

surface: interpreters with operators of their own
needs: cpu
expect: rejected forbidden_op
opens: wall symbols
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/runtime/static/impl.h>
torch::Tensor run(const std::string& text, torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
  auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(text, graph.get());
  torch::jit::StaticModule made(graph);
  return made({x, weight, bias}, {}).toTensor().clone();
}
"""

GRAPH = """graph(%x : Tensor, %w : Tensor, %b : Tensor):
  %s : int = prim::Constant[value=WIDTH]()
  %l : int[] = prim::ListConstruct(%s)
  %e : float = prim::Constant[value=EPS]()
  %t : bool = prim::Constant[value=0]()
  %y : Tensor = aten::layer_norm(%x, %l, %w, %b, %e, %t)
  return (%y)
"""

extension = load_inline(name="static_module", cpp_sources=SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        text = GRAPH.replace("WIDTH", str(self.weight.numel())).replace("EPS", repr(self.eps))
        with torch.no_grad():
            return extension.run(text, x.contiguous(), self.weight.detach(), self.bias.detach())
