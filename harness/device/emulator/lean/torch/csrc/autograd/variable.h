// Of torch's header what its factories use, torch::empty and the like.
#pragma once
#include <ATen/core/Tensor.h>

namespace emu {
// Torch's own, compiled once, with the emulator: csrc/device/variable.cpp.
at::Tensor make_variable(at::Tensor data, bool requires_grad, bool allow_tensor_metadata_change);
}  // namespace emu

namespace torch::autograd {
using Variable = at::Tensor;

inline Variable make_variable(at::Tensor data, bool requires_grad = false, bool allow_tensor_metadata_change = true) {
    return emu::make_variable(std::move(data), requires_grad, allow_tensor_metadata_change);
}
}  // namespace torch::autograd
