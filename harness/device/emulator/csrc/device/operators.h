// How an operator is called on the device's memory, and how a captured stream keeps the call.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>

#include "../../include/emu/current_stream.h"

namespace emu_device {
bool is_written(const c10::AliasInfo* info);
bool gives_views(const c10::OperatorHandle& op);
// The host needs to know values: they are the result, its shape depends on them, or a mask becomes indices.
bool host_waits(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
void call_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack);   // what the CPU's kernel does

class InStream {   // makes a stream the current one
public:
    explicit InStream(void* stream) { emu_set_current_stream(stream); }
    ~InStream() { emu_set_current_stream(before_); }
    InStream(const InStream&) = delete;

private:
    void* const before_ = emu_current_stream();
};

// recording.cpp: in a captured stream. All raise c10::Error where CUDA or the emulator cannot record.
void capture_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack);
void capture_work(std::function<void()> work);   // which uses the current stream
void refuse_wait_in_capture();                   // does nothing where no stream is captured
}  // namespace emu_device
