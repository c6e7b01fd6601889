// The instructions of inline PTX, as translate/ptx.py writes them. Registers are unsigned integers of their
// width; an instruction sees them as the type in its name.
#pragma once
#include "atomics.h"
#include "half.h"
#include "math.h"
#include "ptx_arithmetic.h"
#include "sync.h"

namespace emu::ptx {
template <size_t N>
struct Unsigned;
template <>
struct Unsigned<1> { using type = uint8_t; };
template <>
struct Unsigned<2> { using type = uint16_t; };
template <>
struct Unsigned<4> { using type = uint32_t; };
template <>
struct Unsigned<8> { using type = uint64_t; };

// Any register, operand or constant as a T.
template <class T, class From>
inline T as(const From& from) {
    if constexpr (std::is_same_v<T, From>) {
        return from;
    } else if constexpr (std::is_integral_v<T> && std::is_integral_v<From>) {
        return static_cast<T>(from);
    } else if constexpr (std::is_pointer_v<From>) {
        return as<T>(reinterpret_cast<uint64_t>(from));
    } else {
        using Bits = typename Unsigned<sizeof(T)>::type;
        Bits bits = 0;
        constexpr size_t n = sizeof(From) < sizeof(T) ? sizeof(From) : sizeof(T);
        std::memcpy(&bits, &from, n);
        T result;
        std::memcpy(static_cast<void*>(&result), &bits, sizeof result);
        return result;
    }
}
// The result of an instruction into a register or a C++ variable; narrower results are extended.
template <class To, class From>
inline void put(To& to, const From& from) {
    if constexpr (std::is_same_v<To, bool>) {
        to = static_cast<bool>(from);
    } else if constexpr (std::is_integral_v<To> && std::is_integral_v<From>) {
        to = static_cast<To>(from);
    } else {
        std::memset(static_cast<void*>(&to), 0, sizeof to);
        std::memcpy(static_cast<void*>(&to), &from, sizeof from < sizeof to ? sizeof from : sizeof to);
    }
}
struct Sink {};   // the register _
template <class From>
inline void put(Sink, const From&) {}

enum class Order { Weak, Volatile, Strong };

inline void check_aligned(const void* address, size_t bytes, int line) {
    const size_t off = reinterpret_cast<size_t>(address) % bytes;
    if (!off) return;
    fail("misaligned_access", line, "A PTX access of %zu bytes needs an address that is a multiple of that; this one is "
         "%zu bytes off.", bytes, off);
}
template <class T, int N>
EMU_UNCHECKED inline void load(const void* address, T (&out)[N], Order order, int line) {
    check_aligned(address, sizeof out, line);
    if (order == Order::Strong) before_strong(address, sizeof out, false, line);
    else if (order == Order::Volatile) before_volatile(address, sizeof out, false, line);
    else access_hint(address, sizeof out, false, line);
    asm volatile("" ::: "memory");
    std::memcpy(out, address, sizeof out);
}
template <class T, int N>
EMU_UNCHECKED inline void store(void* address, const T (&in)[N], Order order, int line) {
    check_aligned(address, sizeof in, line);
    if (order == Order::Strong) before_strong(address, sizeof in, true, line);
    else if (order == Order::Volatile) before_volatile(address, sizeof in, true, line);
    else access_hint(address, sizeof in, true, line);
    std::memcpy(address, in, sizeof in);
    asm volatile("" ::: "memory");
}
inline void* shared(uint64_t address) { return from_shared_window(uint32_t(address)); }
inline void* generic(uint64_t address) { return reinterpret_cast<void*>(address); }
inline uint32_t map_rank(uint32_t address, uint32_t rank, int line) {
    return shared_window(map_to_peer(from_shared_window(address), rank, line));
}

inline uint32_t lanes_below() { return (1u << current->lane) - 1; }
template <class T>
inline T shift_left(T value, uint32_t by) { return by >= sizeof(T) * 8 ? T(0) : T(value << by); }
template <class T>
inline T shift_right(T value, uint32_t by) {
    if (by < sizeof(T) * 8) return T(value >> by);
    return value < 0 ? T(-1) : T(0);
}
inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t result = 0;
    for (int i = 0; i < 8; i++) {
        if (table >> i & 1) result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    }
    return result;
}
// shfl.sync: the third operand packs the segment mask and the clamp.
inline int shuffle_source(char mode, uint32_t b, uint32_t c, bool* inside) {
    const int lane = int(current->lane), segment = int(c >> 8 & 31), clamp = int(c & 31);
    const int top = (lane & segment) | (clamp & ~segment), bottom = lane & segment, by = int(b & 31);
    int source = mode == 'i' ? (bottom | (by & ~segment)) : mode == 'u' ? lane - by : mode == 'd' ? lane + by : lane ^ by;
    *inside = mode == 'u' ? source >= top : source <= top;
    return *inside ? source : lane;
}
inline uint32_t shuffle(char mode, uint32_t value, uint32_t b, uint32_t c, uint32_t mask, bool* inside, int line) {
    return exchange(mask, value, shuffle_source(mode, b, c, inside), line);
}
}  // namespace emu::ptx
