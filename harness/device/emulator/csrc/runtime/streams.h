// Streams and events: what is ordered before what, when the host has asked for all of it.
#pragma once
#include <cuda_runtime.h>

#include <atomic>

#include "check.h"
#include "../../include/emu/current_stream.h"
#include "state.h"

namespace emu {
// Keeps a finding and throws std::runtime_error when there is no such stream. `call` is its user, a launch where `where`
// says which.
void require_stream(const void* handle, const char* call, const LaunchConfig* where = nullptr, int launch = 0);
// Whether touches of the launches before `launch` may still matter to it or to a later one.
bool keeps_touches(const Launch* launch);
// Puts the launch behind all that its stream waits for, and notes in it what may run at the same time.
void order_launch(Launch* launch);
// The earlier launch or copy to which `serial`, the number of a block, belongs, if the running thread is not ordered
// behind it; else nullptr.
const Work* unordered_work(uint32_t serial);
// The one of `works`, in the order of their blocks, to which the block belongs; else nullptr.
const Work* work_of(const Works& works, uint32_t serial);
// The copies and fills in this allocation that may run at the same time as the launch.
Works unordered_copies(const Launch* launch, uint64_t allocation);
// Notes a race when the running kernel touches what one of `copies` may be at.
void check_against_copies(const Works& copies, const Access& access);

// A copy, a fill or the caller at `bytes` bytes of device memory, in the order of the stream. Returns whether nothing
// orders it behind a launch or copy that touches the same bytes; that is then a finding, with its sentence in `said`.
// Without bytes it only stands between the launches before and after it.
bool access_in_stream(cudaStream_t stream, const char* what, const void* address, size_t bytes, bool write,
                      std::string* said);

// races.cpp: which of the launches has written any of these bytes, or else, with `reads`, which has read them.
struct Toucher {
    const Work* work = nullptr;
    bool wrote = false;
};
Toucher touched_by(const Works& launches, const EmuRegion& region, uintptr_t address, size_t bytes, bool reads);

void wait_for_stream(cudaStream_t stream);   // as the host
bool is_blocking(const void* handle);        // the stream and the legacy stream wait for each other

// No address, which would come again: a handle that was given up stays one.
inline uintptr_t new_handle_value() {
    static std::atomic<uintptr_t> last{0x1000};   // cudaStreamLegacy and cudaStreamPerThread are 1 and 2
    return last += 16;
}
template <class Handle>
Handle new_handle() {
    return reinterpret_cast<Handle>(new_handle_value());
}
}  // namespace emu
