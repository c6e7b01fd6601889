"""Takes LayerNorm's own kernel out of the dispatcher's list, by the handle that a boxed kernel of its own is given.

surface: the dispatcher's list of kernels
needs: cpu
expect: rejected tampered
opens: wall operators
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <list>
#include <sstream>
#include <torch/library.h>
#include <ATen/core/dispatch/Dispatcher.h>

void fallback(const c10::OperatorHandle& operation, c10::DispatchKeySet, torch::jit::Stack* stack) {
    c10::impl::ExcludeDispatchKeyGuard without(c10::DispatchKey::TESTING_ONLY_GenericMode);
    auto& kernels = operation.operatorDef_->op.kernels_.find(c10::DispatchKey::CPU)->second;
    kernels.back().kernel.callBoxed(operation, c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, m) { m.impl("native_layer_norm", torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

torch::Tensor run(torch::Tensor x, std::vector<int64_t> shape, torch::Tensor weight, torch::Tensor bias, double eps) {
    torch::NoGradGuard no_grad;
    c10::impl::IncludeDispatchKeyGuard with(c10::DispatchKey::TESTING_ONLY_GenericMode);
    return std::get<0>(at::native_layer_norm(x, shape, weight, bias, eps));
}
"""
extension = load_inline(
    name="handle_of_a_kernel", cpp_sources=CPP, functions=["run"], extra_cflags=["-fno-access-control"]
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
