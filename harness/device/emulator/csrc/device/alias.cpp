#include "alias.h"

namespace emu_device {
using namespace c10;

namespace {
void drop_storage(void* storage) { delete static_cast<Storage*>(storage); }

// CPU kernels resize their outputs: an alias that grows must grow in device memory.
struct AliasAllocator final : Allocator {
    DataPtr allocate(size_t bytes) override {
        DataPtr memory = cuda_memory(bytes);
        void* data = memory.release_context();
        return {data, data, &release, Device(DeviceType::CPU)};
    }
    DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override { memcpy(to, from, bytes); }
};
AliasAllocator alias_allocator;

void copy_bits(const at::Tensor& from, const at::Tensor& to) {
    if (from.is_conj()) to._set_conj(true);
    if (from.is_neg()) to._set_neg(true);
}
}  // namespace

at::Tensor Aliases::to_cpu(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != DeviceType::CUDA) return tensor;
    Storage storage = tensor.storage();
    void* data = storage.data_ptr().get();
    auto* kept = new Storage(storage);   // keeps the device memory alive as long as the alias
    Storage host(Storage::use_byte_size_t(), storage.nbytes(),
                 DataPtr(data, kept, &drop_storage, Device(DeviceType::CPU)), &alias_allocator, true);
    if (data) originals_.emplace(data, Original{storage, tensor.key_set()});
    auto impl = make_intrusive<TensorImpl>(std::move(host), DispatchKeySet(DispatchKey::CPU), tensor.dtype());
    impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    at::Tensor alias(std::move(impl));
    copy_bits(tensor, alias);
    const bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    if (wrapped) alias.unsafeGetTensorImpl()->set_wrapped_number(true);
    return alias;
}

Storage Aliases::to_cuda_storage(const Storage& storage) {
    void* data = storage.data_ptr().get();
    auto known = data ? originals_.find(data) : originals_.end();
    if (known != originals_.end()) return known->second.storage;
    // A result in ordinary memory moves between guard pages, so that kernels reading past it are caught.
    DataPtr memory = cuda_memory(storage.nbytes());
    if (data) memcpy(memory.get(), data, storage.nbytes());
    Storage moved(Storage::use_byte_size_t(), storage.nbytes(), std::move(memory), cuda_allocator(), true);
    if (data) originals_.emplace(data, Original{moved, {}});
    return moved;
}

at::Tensor Aliases::to_cuda(const at::Tensor& result) {
    if (!result.defined() || result.device().type() != DeviceType::CPU || !result.has_storage()) return result;
    void* data = result.storage().data_ptr().get();
    auto known = data ? originals_.find(data) : originals_.end();
    const bool view = known != originals_.end() && !known->second.keys.empty();
    auto impl = view ? make_intrusive<TensorImpl>(TensorImpl::VIEW, Storage(known->second.storage),
                                                  known->second.keys, result.dtype())
                     : make_intrusive<TensorImpl>(to_cuda_storage(result.storage()),
                                                  DispatchKeySet(DispatchKey::CUDA), result.dtype());
    impl->set_sizes_and_strides(result.sizes(), result.strides(), result.storage_offset());
    at::Tensor tensor(std::move(impl));
    copy_bits(result, tensor);
    return tensor;
}
}  // namespace emu_device
