// memcpy and its kin: a host compiler may expand them without a call, so that no hook sees what they touch. The
// translator writes these names in their place.
#pragma once
#include <cstring>

#include "runtime.h"

namespace emu {
inline void* copy_bytes(void* to, const void* from, size_t bytes, EMU_LINE) {
    access_range(from, bytes, false, emu_line);
    access_range(to, bytes, true, emu_line);
    return std::memcpy(to, from, bytes);
}
inline void* move_bytes(void* to, const void* from, size_t bytes, EMU_LINE) {
    access_range(from, bytes, false, emu_line);
    access_range(to, bytes, true, emu_line);
    return std::memmove(to, from, bytes);
}
inline void* set_bytes(void* to, int value, size_t bytes, EMU_LINE) {
    access_range(to, bytes, true, emu_line);
    return std::memset(to, value, bytes);
}
}  // namespace emu
