// The pipeline primitives: copies to shared memory in groups of a thread.
#pragma once
#include <emu/emu.h>

inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0, EMU_LINE) {
    ::emu::async_copy(to, from, bytes - zeros, zeros, emu_line);
}
inline void __pipeline_commit() { ::emu::async_commit(); }
inline void __pipeline_wait_prior(size_t groups) { ::emu::async_wait(groups); }
