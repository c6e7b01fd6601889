// What lean/torch/csrc/autograd/variable.h leaves out.
#include <torch/csrc/autograd/variable.h>

namespace emu {
at::Tensor make_variable(at::Tensor data, bool requires_grad, bool allow_tensor_metadata_change) {
    return torch::autograd::make_variable(std::move(data), requires_grad, allow_tensor_metadata_change);
}
}  // namespace emu
