// What torch's side needs of the streams.
#pragma once
#include <cstddef>

extern "C" {
void* emu_current_stream();
void emu_set_current_stream(void* stream);
void* emu_pool_stream();             // one of 32, in turn, as torch gives them out
void emu_wait_for_current_stream();
void* emu_blas_handle();             // of the current stream
void emu_wait_for_device();
// `what` reads or writes device memory in the current stream. A sentence, and a finding, when nothing orders it behind
// what touches the same bytes in another stream; else nullptr.
const char* emu_access(const char* what, const void* address, size_t bytes, int write);
}
