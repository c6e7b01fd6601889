// Host memory that kernels may use, and functions of the host in streams.
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>

#include "capture.h"
#include "cuda_state.h"
#include "state.h"
#include "streams.h"

namespace emu {
namespace {
std::mutex lock;
std::map<uintptr_t, size_t> pinned;   // bytes by address

void pin(const void* memory, size_t bytes) {
    const std::lock_guard<std::mutex> guard(lock);
    pinned[reinterpret_cast<uintptr_t>(memory)] = bytes;
}

bool unpin(const void* memory) {
    const std::lock_guard<std::mutex> guard(lock);
    return pinned.erase(reinterpret_cast<uintptr_t>(memory));
}
}  // namespace

bool is_pinned(uintptr_t address) {
    const std::lock_guard<std::mutex> guard(lock);
    const auto after = pinned.upper_bound(address);
    return after != pinned.begin() && address < std::prev(after)->first + std::prev(after)->second;
}
}  // namespace emu

using namespace emu;

extern "C" {
cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
    *pointer = malloc(bytes);
    if (!*pointer) return fail_with(cudaErrorMemoryAllocation);
    pin(*pointer, bytes);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) { return cudaMallocHost(pointer, bytes); }
cudaError_t cudaFreeHost(void* pointer) {
    unpin(pointer);
    free(pointer);
    return cudaSuccess;
}
cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned) {
    pin(pointer, bytes);
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* pointer) { return unpin(pointer) ? cudaSuccess : fail_with(cudaErrorInvalidValue); }
// Host and device have one address space, as with unified addressing.
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
    *device = host;
    return is_pinned(reinterpret_cast<uintptr_t>(host)) ? cudaSuccess : fail_with(cudaErrorInvalidValue);
}

// What came before in the stream is done when its turn comes.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    raise_unseen_error();
    require_stream(stream, "cudaLaunchHostFunc");
    if (is_captured(stream)) return capture(stream, [=](cudaStream_t where) { return cudaLaunchHostFunc(where, function, data); });
    function(data);
    return cudaSuccess;
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data, unsigned) {
    raise_unseen_error();
    require_stream(stream, "cudaStreamAddCallback");
    if (const cudaError_t error = may_wait_for(stream)) return error;   // CUDA's for it in a capture
    function(stream, cudaSuccess, data);
    return cudaSuccess;
}
}
