// CUDA graphs by stream capture: work in a captured stream is kept, and done whenever a graph of it is launched.
#pragma once
#include <cuda_runtime.h>

#include <functional>
#include <optional>
#include <string>

extern "C" {
int emu_is_capturing();                  // the current stream is captured
void emu_keep_for_graph(void* memory);   // device memory that is given out in a capture lives as long as the graph
int emu_let_go(void* memory);            // as emu_release, but for what a graph still needs
}

namespace emu {
using Step = std::function<cudaError_t(cudaStream_t)>;   // does its work in the stream that it is given

// Whether work in the stream must go to `capture`. True of the legacy stream, too, while a stream is captured that the
// legacy stream waits for.
bool is_captured(const void* stream);
// Keeps the work. Returns CUDA's error, and ends the capture, where CUDA refuses it.
cudaError_t capture(const void* stream, Step step);
// Keeps the finding that `what` is legal and not emulated; returns its sentence.
std::string keep_unsupported(const char* what);
[[noreturn]] void refuse_unsupported(const char* what);   // the same, and throws
// cudaSuccess, or CUDA's error for a call that waits for a captured stream, which ends the capture.
cudaError_t may_wait_for(const void* stream);
cudaError_t may_wait_for_event(cudaEvent_t event);
cudaError_t may_wait_for_all();
// The same for calls that CUDA calls potentially unsafe in a capture, as cudaMalloc.
cudaError_t may_call_unsafe();

// An event that is recorded in a captured stream stands for a place in the graph.
cudaError_t capture_event(cudaEvent_t event, const void* stream);
void forget_captured(cudaEvent_t event);   // it is recorded elsewhere, or destroyed
// Nothing where neither the stream nor the event is of a capture. `recorded` says whether the event ever was.
std::optional<cudaError_t> capture_wait(const void* stream, cudaEvent_t event, bool recorded);
}  // namespace emu
