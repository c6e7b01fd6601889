// Streams and events: what is ordered before what, when the host has asked for all of it.
#pragma once
#include <cuda_runtime.h>

#include "current_stream.h"
#include "state.h"

namespace emu {
bool stream_exists(const void* handle);
// Whether touches of the launches before `launch` may still matter to it or to a later one.
bool keeps_touches(const Launch* launch);
// Puts the launch behind all that its stream waits for, and notes in it what may run at the same time.
void order_launch(Launch* launch);
// The earlier launch or copy to which `serial`, the number of a block, belongs, if the running thread is not ordered
// behind it; else nullptr.
const Work* unordered_work(uint32_t serial);
// Notes a race when the running kernel touches what a copy or a fill in another stream may be at.
void check_against_copies(uintptr_t address, size_t bytes, bool write, int line, uintptr_t pc);

// A copy, a fill or the caller at `bytes` bytes of device memory, in the order of the stream. Returns whether nothing
// orders it behind a launch or copy that touches the same bytes; that is then a finding, with its sentence in `said`.
bool access_in_stream(cudaStream_t stream, const char* what, const void* address, size_t bytes, bool write,
                      std::string* said);

// races.cpp: whether blocks `first` to `last` - 1 have written, or with `reads` read, any of these bytes.
bool touched_by(uintptr_t address, size_t bytes, uint32_t first, uint32_t last, bool reads);

void wait_for_stream(cudaStream_t stream);   // as the host
}  // namespace emu
