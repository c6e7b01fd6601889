"""Takes LayerNorm's own kernel out of the dispatcher's list, where it stands behind the one that refuses.

surface: the dispatcher's list of kernels
needs: cpu
expect: rejected forbidden_op
opens: wall symbols
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <list>
#include <sstream>
#include <ATen/core/dispatch/Dispatcher.h>

torch::Tensor run(torch::Tensor x, std::vector<int64_t> shape, torch::Tensor weight, torch::Tensor bias, double eps) {
    torch::NoGradGuard no_grad;
    static auto operation = c10::Dispatcher::singleton().findSchema({"aten::native_layer_norm", ""}).value();
    auto& kernels = operation.operatorDef_->op.kernels_.find(c10::DispatchKey::CPU)->second;
    torch::jit::Stack stack{x, c10::List<int64_t>(shape), weight, bias, eps};
    kernels.back().kernel.callBoxed(operation, c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    return stack[0].toTensor();
}
"""
extension = load_inline(
    name="kernel_behind_the_entry", cpp_sources=CPP, functions=["run"], extra_cflags=["-fno-access-control"]
)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        weight, bias = self.weight.detach(), self.bias.detach()
        return extension.run(x.detach().contiguous(), list(weight.shape), weight, bias, self.eps)
