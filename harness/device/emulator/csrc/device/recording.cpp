// torch's operators in a captured stream: each graph launch calls the CPU's kernel again.
#include <ATen/core/LegacyTypeDispatch.h>
#include <cuda_runtime.h>

#include <cstring>

#include "../../include/emu/current_stream.h"
#include "../runtime/capture.h"
#include "alias.h"
#include "operators.h"

namespace emu_device {
using namespace c10;
using torch::jit::Stack;

namespace {
void give(const at::Tensor& result, const at::Tensor& again) {
    if (!result.defined() || result.const_data_ptr() == again.const_data_ptr()) return;
    Aliases aliases;
    aliases.to_cpu(result).copy_(aliases.to_cpu(again));
}

void give(const IValue& result, const IValue& again) {
    if (result.isTensor()) return give(result.toTensor(), again.toTensor());
    if (!result.isTensorList()) return;
    const auto results = result.toTensorVector(), values = again.toTensorVector();
    for (size_t i = 0; i < results.size(); i++) give(results[i], values[i]);
}

// A call whose results lie each time where those of the capture lie.
struct RecordedCall {
    OperatorHandle op;
    Stack arguments, results;

    void run() const {
        Stack stack = arguments;
        call_on_cpu(op, &stack);
        for (size_t i = 0; i < results.size(); i++) give(results[i], stack[i]);
    }
};

// What an operator writes, as it was before: in a capture it is called for the forms of its results alone.
class PutBack {
public:
    PutBack(const OperatorHandle& op, const Stack& arguments) {
        const auto& schema = op.schema().arguments();
        for (size_t i = 0; i < schema.size(); i++) {
            if (!is_written(schema[i].alias_info())) continue;
            if (arguments[i].isTensor()) keep(arguments[i].toTensor());
            if (!arguments[i].isTensorList()) continue;
            for (const at::Tensor& tensor : arguments[i].toTensorVector()) keep(tensor);
        }
    }
    ~PutBack() {
        for (const auto& [storage, bytes] : before_) memcpy(storage.mutable_data(), bytes.data(), bytes.size());
    }

private:
    void keep(const at::Tensor& tensor) {
        if (!tensor.defined() || !tensor.is_cuda() || !tensor.storage().nbytes()) return;
        const Storage& storage = tensor.storage();
        before_.emplace_back(storage, std::string(static_cast<const char*>(storage.data()), storage.nbytes()));
    }
    std::vector<std::pair<Storage, std::string>> before_;
};

Stack last(const Stack& stack, size_t count) { return Stack(stack.end() - std::ptrdiff_t(count), stack.end()); }
}  // namespace

void refuse_wait_in_capture() {
    TORCH_CHECK(!emu_is_capturing(), "CUDA error: operation not permitted when stream is capturing: the host would wait "
                "for a value.");
}

void capture_work(std::function<void()> work) {
    const auto error = emu::capture(emu_current_stream(), [work = std::move(work)](cudaStream_t stream) {
        const InStream in(stream);
        const at::AutoDispatchBelowADInplaceOrView guard;
        work();
        return cudaSuccess;
    });
    TORCH_CHECK(error == cudaSuccess, "CUDA error: ", cudaGetErrorString(error), ".");
}

void capture_operator(const OperatorHandle& op, Stack* stack) {
    if (host_waits(op, *stack)) refuse_wait_in_capture();
    RecordedCall call{op, last(*stack, op.schema().arguments().size()), {}};
    const PutBack put_back(op, call.arguments);
    try {
        call_on_cpu(op, stack);
    } catch (const OutOfMemoryError&) {
        throw;
    } catch (const Error& error) {   // of values that are not there yet
        TORCH_CHECK_NOT_IMPLEMENTED(false, "CUDA emulator: not emulated: ", op.schema().name(), " in a captured stream (",
                                    error.what_without_backtrace(), ")");
    }
    if (gives_views(op)) return;
    call.results = last(*stack, op.schema().returns().size());
    capture_work([call = std::move(call)] { call.run(); });
}
}  // namespace emu_device
