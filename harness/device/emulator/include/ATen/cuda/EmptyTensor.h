// Shadows torch's header of this name: its functions, which skip the dispatcher, are in a CUDA library.
#pragma once
#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <emu/torch_cuda.h>

namespace at::detail {
inline TensorBase empty_cuda(IntArrayRef size, ScalarType type, std::optional<Device> device,
                             std::optional<MemoryFormat> format) {
    TORCH_CHECK(!device || device->is_cuda(), "empty_cuda: expected a CUDA device, got ", *device);
    return empty_generic(size, c10::GetAllocator(kCUDA), c10::DispatchKeySet(c10::DispatchKey::CUDA), type, format);
}
inline TensorBase empty_cuda(IntArrayRef size, const TensorOptions& options) {
    return empty_cuda(size, c10::typeMetaToScalarType(options.dtype()), options.device(),
                      options.memory_format_opt());
}
}  // namespace at::detail
