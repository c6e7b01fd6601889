// CUDA tensors seen as CPU tensors on the same memory, and back.
#pragma once
#include <ATen/core/Tensor.h>

#include <unordered_map>

namespace emu_device {
c10::Allocator* cuda_allocator();
c10::DataPtr cuda_memory(size_t bytes);
void release(void* data);  // what cuda_memory gave
void expect_device(c10::Device device);

// Remembers, for the time of one operator, which CUDA storage a host pointer stands for.
class Aliases {
public:
    at::Tensor to_cpu(const at::Tensor& tensor);
    at::Tensor to_cuda(const at::Tensor& result);
    c10::Storage to_cuda_storage(const c10::Storage& storage);

private:
    struct Original {
        c10::Storage storage;
        c10::DispatchKeySet keys;
    };
    std::unordered_map<const void*, Original> originals_;
};
}  // namespace emu_device
