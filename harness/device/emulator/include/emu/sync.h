// Barriers, fences and warp operations of the CUDA C++ language.
#pragma once
#include <cstring>

#include "runtime.h"

inline void __syncthreads(EMU_LINE) { ::emu::block_barrier(emu_line, ::emu::Reduce::None, 0); }
inline int __syncthreads_count(int p, EMU_LINE) { return ::emu::block_barrier(emu_line, ::emu::Reduce::Count, p); }
inline int __syncthreads_and(int p, EMU_LINE) { return ::emu::block_barrier(emu_line, ::emu::Reduce::And, p); }
inline int __syncthreads_or(int p, EMU_LINE) { return ::emu::block_barrier(emu_line, ::emu::Reduce::Or, p); }
inline void __syncwarp(unsigned mask = 0xffffffffu, EMU_LINE) {
    ::emu::warp_operation(::emu::WarpOp::Sync, mask, 0, 0, emu_line);
}
// Memory is sequentially consistent here; what a fence must do is keep the compiler from reordering.
inline void __threadfence() {
    asm volatile("" ::: "memory");
    ::emu::fence(true);
}
inline void __threadfence_block() {
    asm volatile("" ::: "memory");
    ::emu::fence(false);
}
inline void __threadfence_system() { __threadfence(); }
inline void cudaGridDependencySynchronize() { ::emu::wait_for_earlier_launch(); }
inline void cudaTriggerProgrammaticLaunchCompletion() {}
inline void __nanosleep(unsigned) { ::emu::give_way(); }

namespace emu {
// Moves any trivially copyable value between lanes; `source` is the lane to read.
template <class T>
inline T exchange(uint32_t mask, const T& value, int source, int line) {
    T result;
    for (size_t at = 0; at < sizeof(T); at += 16) {
        const unsigned bytes = sizeof(T) - at < 16 ? unsigned(sizeof(T) - at) : 16u;
        std::memcpy(current->in, reinterpret_cast<const char*>(&value) + at, bytes);
        warp_operation(WarpOp::Shuffle, mask, source, bytes, line);
        std::memcpy(reinterpret_cast<char*>(&result) + at, current->out, bytes);
    }
    return result;
}
inline void check_width(int width, int line) {
    if (width >= 1 && width <= 32 && !(width & (width - 1))) return;
    fail("bad_shuffle", line, "A shuffle has width %d; it must be a power of two from 1 to 32.", width);
}
inline int segment(int width) { return int(current->lane) & ~(width - 1); }
inline int up_lane(unsigned delta, int width) {
    const int lane = int(current->lane), source = lane - int(delta);
    return source < segment(width) ? lane : source;
}
inline int down_lane(unsigned delta, int width) {
    const int lane = int(current->lane), source = lane + int(delta);
    return source >= segment(width) + width ? lane : source;
}
inline int xor_lane(int bits, int width) {
    const int lane = int(current->lane), source = lane ^ bits;
    return source >= segment(width) + width ? lane : source;
}
inline uint32_t vote(uint32_t mask, bool predicate, int line) {
    current->in[0] = predicate;
    warp_operation(WarpOp::Ballot, mask, 0, 8, line);
    return uint32_t(current->out[0]);
}
template <class T>
inline uint32_t match(uint32_t mask, const T& value, int line) {
    current->in[0] = 0;
    std::memcpy(current->in, &value, sizeof value);
    warp_operation(WarpOp::Match, mask, 0, 8, line);
    return uint32_t(current->out[0]);
}
// Every lane reads every other lane's value, in lane order.
template <class T, class F>
inline T reduce_lanes(uint32_t mask, T value, F combine, int line) {
    T result = value;
    bool first = true;
    for (int lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        const T other = exchange(mask, value, lane, line);
        result = first ? other : combine(result, other);
        first = false;
    }
    return result;
}
}  // namespace emu

template <class T>
inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, EMU_LINE) {
    ::emu::check_width(width, emu_line);
    return ::emu::exchange(mask, value, ::emu::segment(width) | (lane & (width - 1)), emu_line);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_LINE) {
    ::emu::check_width(width, emu_line);
    return ::emu::exchange(mask, value, ::emu::up_lane(delta, width), emu_line);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_LINE) {
    ::emu::check_width(width, emu_line);
    return ::emu::exchange(mask, value, ::emu::down_lane(delta, width), emu_line);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, EMU_LINE) {
    ::emu::check_width(width, emu_line);
    return ::emu::exchange(mask, value, ::emu::xor_lane(bits, width), emu_line);
}
inline unsigned __ballot_sync(unsigned mask, int p, EMU_LINE) { return ::emu::vote(mask, p != 0, emu_line); }
inline int __any_sync(unsigned mask, int p, EMU_LINE) { return ::emu::vote(mask, p != 0, emu_line) != 0; }
inline int __all_sync(unsigned mask, int p, EMU_LINE) { return ::emu::vote(mask, p == 0, emu_line) == 0; }
inline int __uni_sync(unsigned mask, int p, EMU_LINE) {
    const unsigned votes = ::emu::vote(mask, p != 0, emu_line);
    return votes == 0 || votes == (mask & ::emu::live_lanes());
}
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, EMU_LINE) {
    return ::emu::match(mask, value, emu_line);
}
template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int* all_equal, EMU_LINE) {
    const unsigned lanes = mask & ::emu::live_lanes();
    *all_equal = ::emu::match(mask, value, emu_line) == lanes;
    return *all_equal ? lanes : 0;
}
inline unsigned __activemask(EMU_LINE) {
    ::emu::warp_operation(::emu::WarpOp::Active, 0, 0, 0, emu_line);
    return unsigned(::emu::current->out[0]);
}
inline unsigned __lane_id() { return ::emu::current->lane; }

#define EMU_REDUCE(name, type, combined)                                               \
    inline type name(unsigned mask, type value, EMU_LINE) {                            \
        auto combine = [](type a, type b) -> type { return combined; };                \
        return ::emu::reduce_lanes(mask, value, combine, emu_line);                    \
    }
EMU_REDUCE(__reduce_add_sync, unsigned, a + b)
EMU_REDUCE(__reduce_add_sync, int, a + b)
EMU_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
EMU_REDUCE(__reduce_min_sync, int, a < b ? a : b)
EMU_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
EMU_REDUCE(__reduce_max_sync, int, a > b ? a : b)
EMU_REDUCE(__reduce_and_sync, unsigned, a & b)
EMU_REDUCE(__reduce_or_sync, unsigned, a | b)
EMU_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef EMU_REDUCE
