// ATen on the emulated device: what has no CUDA kernel runs the CPU kernel on aliases of the same memory.
#include <ATen/EmptyTensor.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <torch/library.h>

#include "../../include/emu/current_stream.h"
#include "../runtime/capture.h"
#include "alias.h"
#include "operators.h"

namespace emu_device {
using namespace c10;

bool is_written(const AliasInfo* info) {
    if (!info) return false;
    const auto& elements = info->containedTypes();   // of a list
    auto is_write = [](const AliasInfo& element) { return element.isWrite(); };
    return info->isWrite() || std::any_of(elements.begin(), elements.end(), is_write);
}

bool gives_views(const OperatorHandle& op) {
    const auto& returns = op.schema().returns();
    return std::any_of(returns.begin(), returns.end(), [](const Argument& result) {
        return result.alias_info() && !result.alias_info()->isWrite();
    });
}

bool host_waits(const OperatorHandle& op, const torch::jit::Stack& stack) {
    bool has_indices = false, has_mask = false;
    for (size_t i = stack.size() - op.schema().arguments().size(); i < stack.size(); i++) {
        if (!stack[i].isOptionalTensorList()) continue;
        for (const std::optional<at::Tensor>& index : stack[i].toOptionalTensorList()) {
            if (!index) continue;
            has_indices = true;
            has_mask |= index->defined() && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
        }
    }
    if (has_mask || op.hasTag(at::Tag::data_dependent_output)) return true;
    return op.hasTag(at::Tag::dynamic_output_shape) && !has_indices;
}

namespace {
// Without bytes where they are not known exactly: the gaps of a strided tensor may be another stream's.
void order_access(const std::string& name, const at::Tensor& tensor, bool write) {
    if (!tensor.defined() || !tensor.is_cuda() || emu_is_capturing()) return;
    const size_t bytes = tensor.is_non_overlapping_and_dense() ? tensor.nbytes() : 0;
    const char* race = emu_access(name.c_str(), tensor.const_data_ptr(), bytes, write);
    TORCH_CHECK(!race, "CUDA emulator: ", race);
}

class BoxedCall {
public:
    BoxedCall(const OperatorHandle& op, torch::jit::Stack* stack)
        : op_(op), stack_(stack), count_(op.schema().arguments().size()), originals_(count_), aliases_(count_) {}

    void run() {
        const size_t base = stack_->size() - count_;
        const bool waits = host_waits(op_, *stack_);
        for (size_t i = 0; i < count_; i++) alias_argument(i, (*stack_)[base + i]);
        refuse_mixed_devices();
        if (!gives_views(op_)) order_in_stream(waits);
        op_.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), stack_);
        for (size_t i = 0; i < count_; i++) follow_resize(i);
        const size_t results = op_.schema().returns().size();
        for (size_t i = stack_->size() - results; i < stack_->size(); i++) {
            label_result((*stack_)[i]);
            if (!gives_views(op_)) order_result((*stack_)[i]);
        }
    }

private:
    at::Tensor alias(const at::Tensor& tensor, bool write) {
        touched_.emplace_back(tensor, write);
        if (tensor.defined() && tensor.is_cuda()) cuda_tensors_++;
        else if (tensor.defined() && tensor.device().is_cpu() && tensor.dim() > 0) cpu_tensors_++;
        return memory_.to_cpu(tensor);
    }

    void alias_argument(size_t i, IValue& value) {
        const bool write = is_written(op_.schema().arguments()[i].alias_info());
        if (value.isTensor()) {
            originals_[i] = value.toTensor();
            aliases_[i] = alias(originals_[i], write);
            value = aliases_[i];
        } else if (value.isTensorList()) {
            std::vector<at::Tensor> list;
            for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(alias(tensor, write));
            value = IValue(list);
        } else if (value.isOptionalTensorList()) {
            c10::List<std::optional<at::Tensor>> list;
            for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
                list.push_back(tensor ? std::optional<at::Tensor>(index_alias(*tensor)) : tensor);
            }
            value = IValue(list);
        } else if (value.isDevice() && value.toDevice().type() == DeviceType::CUDA) {
            creates_on_cuda_ = true;
            value = Device(DeviceType::CPU);
        }
    }

    at::Tensor index_alias(const at::Tensor& tensor) {   // indices may stay on the CPU
        touched_.emplace_back(tensor, false);
        if (tensor.defined() && tensor.is_cuda()) cuda_tensors_++;
        return memory_.to_cpu(tensor);
    }

    void order_in_stream(bool host_waits) const {
        for (const auto& [tensor, write] : touched_) order_access(op_.schema().name(), tensor, write);
        if (host_waits) emu_wait_for_current_stream();
    }

    void order_result(const IValue& result) const {
        if (result.isTensor()) order_access(op_.schema().name(), result.toTensor(), true);
        if (!result.isTensorList()) return;
        for (const at::Tensor& tensor : result.toTensorVector()) order_access(op_.schema().name(), tensor, true);
    }

    void refuse_mixed_devices() const {
        const std::string& name = op_.schema().operator_name().name;
        if (!cpu_tensors_ || !cuda_tensors_ || name.find("copy") != std::string::npos) return;
        TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and "
                    "cpu! (in ", name, ")");
    }

    // An out= argument that the CPU kernel resized or gave new storage.
    void follow_resize(size_t i) {
        const auto* info = op_.schema().arguments()[i].alias_info();
        const at::Tensor& original = originals_[i];
        if (!info || !info->isWrite() || !original.defined() || !original.is_cuda()) return;
        const at::Tensor& alias = aliases_[i];
        auto* impl = original.unsafeGetTensorImpl();
        if (alias.storage().data_ptr().get() != original.storage().data_ptr().get()) {
            impl->set_storage_keep_dtype(memory_.to_cuda_storage(alias.storage()));
        }
        impl->set_sizes_and_strides(alias.sizes(), alias.strides(), alias.storage_offset());
    }

    at::Tensor label(const at::Tensor& tensor) {
        for (size_t i = 0; i < count_; i++) {
            if (originals_[i].defined() && tensor.is_same(aliases_[i])) return originals_[i];
        }
        return cuda_tensors_ || creates_on_cuda_ ? memory_.to_cuda(tensor) : tensor;
    }

    void label_result(IValue& value) {
        if (value.isTensor()) {
            value = label(value.toTensor());
        } else if (value.isTensorList()) {
            std::vector<at::Tensor> list;
            for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(label(tensor));
            value = IValue(list);
        }
    }

    const OperatorHandle& op_;
    torch::jit::Stack* stack_;
    const size_t count_;
    std::vector<at::Tensor> originals_, aliases_;
    std::vector<std::pair<at::Tensor, bool>> touched_;   // and whether it is written
    Aliases memory_;
    int cuda_tensors_ = 0, cpu_tensors_ = 0;
    bool creates_on_cuda_ = false;
};

}  // namespace

void call_on_cpu(const OperatorHandle& op, torch::jit::Stack* stack) { BoxedCall(op, stack).run(); }

namespace {
void run_on_cpu(const OperatorHandle& op, torch::jit::Stack* stack) {
    try {
        if (emu_is_capturing()) capture_operator(op, stack);
        else call_on_cpu(op, stack);
    } catch (const c10::NotImplementedError& error) {   // a GPU may have a kernel where a CPU has none
        TORCH_CHECK_NOT_IMPLEMENTED(false, "CUDA emulator: not emulated: ", op.schema().name(), ", which has no CPU kernel (",
                                    error.what_without_backtrace(), ")");
    }
}

// ---- operators that are about memory and devices themselves
at::Tensor empty(IntArrayRef size, std::optional<ScalarType> dtype, std::optional<Layout>, std::optional<Device> device,
                 std::optional<bool>, std::optional<MemoryFormat> format) {
    if (device) expect_device(*device);
    return at::detail::empty_generic(size, cuda_allocator(), DispatchKeySet(DispatchKey::CUDA), dtype_or_default(dtype),
                                     format);
}
at::Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<ScalarType> dtype, std::optional<Layout>,
                         std::optional<Device> device, std::optional<bool>) {
    if (device) expect_device(*device);
    return at::detail::empty_strided_generic(size, stride, cuda_allocator(), DispatchKeySet(DispatchKey::CUDA),
                                             dtype_or_default(dtype));
}
void copy_now(const at::Tensor& to, const at::Tensor& from) {
    order_access("aten::copy_", from, false);
    order_access("aten::copy_", to, true);
    Aliases aliases;
    at::Tensor to_alias = aliases.to_cpu(to), from_alias = aliases.to_cpu(from);
    at::AutoDispatchBelowADInplaceOrView guard;
    to_alias.copy_(from_alias);
}
// The host waits for what it is given from the device, and for the end of a copy from its own memory.
at::Tensor& copy_(at::Tensor& self, const at::Tensor& from, bool non_blocking) {
    const bool host_waits = self.is_cpu() != from.is_cpu() && !non_blocking;
    if (host_waits) refuse_wait_in_capture();
    if (emu_is_capturing()) {
        capture_work([self, from] { copy_now(self, from); });
        return self;
    }
    copy_now(self, from);
    if (host_waits) emu_wait_for_current_stream();
    return self;
}
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool non_blocking) {
    at::Tensor destination = to;
    copy_(destination, self, non_blocking);
    return to;
}
Scalar local_scalar_dense(const at::Tensor& self) {
    refuse_wait_in_capture();
    order_access("aten::_local_scalar_dense", self, false);
    emu_wait_for_current_stream();
    Aliases aliases;
    return at::_local_scalar_dense(aliases.to_cpu(self));
}
void record_stream(at::Tensor&, Stream) {}
at::Tensor& set_storage_view(at::Tensor& self, Storage storage, SymInt offset, SymIntArrayRef size,
                             SymIntArrayRef stride) {
    auto* impl = self.unsafeGetTensorImpl();
    impl->set_storage_keep_dtype(std::move(storage));
    const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
    const bool strided = stride.size() || !size.size();
    if (strided) impl->set_sizes_and_strides(sizes, C10_AS_INTARRAYREF_SLOW(stride), offset.expect_int());
    else impl->set_sizes_and_strides(sizes, at::detail::defaultStrides(sizes), offset.expect_int());
    return self;
}
at::Tensor& set_storage(at::Tensor& self, Storage storage) {
    const int64_t count = int64_t(storage.nbytes() / self.itemsize());
    auto* impl = self.unsafeGetTensorImpl();
    impl->set_storage_keep_dtype(std::move(storage));
    impl->set_sizes_contiguous({count});
    return self;
}
const at::Tensor& resize_(const at::Tensor& self, IntArrayRef size, std::optional<MemoryFormat>) {
    const size_t need = size_t(multiply_integers(size) + self.storage_offset()) * self.itemsize();
    const Storage& storage = self.storage();
    if (need > storage.nbytes()) {
        DataPtr memory = cuda_memory(need);
        if (storage.nbytes()) memcpy(memory.get(), storage.data_ptr().get(), storage.nbytes());
        storage.unsafeGetStorageImpl()->set_data_ptr(std::move(memory));
        storage.unsafeGetStorageImpl()->set_nbytes(need);
    }
    self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
    return self;
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
    m.impl("empty.memory_format", empty);
    m.impl("empty_strided", empty_strided);
    m.impl("copy_", copy_);
    m.impl("_copy_from", copy_from);
    m.impl("_local_scalar_dense", local_scalar_dense);
    m.impl("record_stream", record_stream);
    m.impl("set_.source_Storage", set_storage);
    m.impl("set_.source_Storage_storage_offset", set_storage_view);
    m.impl("resize_", resize_);
    // These also have a composite form, which would win over the fallback and be made of other operators: of
    // convolutions, depthwise ones, by some that no CPU has.
    for (const char* name : {"native_layer_norm", "native_group_norm", "_fused_rms_norm", "convolution",
                             "convolution_backward"}) {
        m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
    }
}
TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>()); }
}  // namespace
}  // namespace emu_device
