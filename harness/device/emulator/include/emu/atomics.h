// Atomic functions, and loads and stores with cache hints.
#pragma once
#include <cstring>
#include <type_traits>

#include "launch.h"

// Instrumentation would take an atomic's own accesses for plain ones.
#define EMU_UNCHECKED __attribute__((no_sanitize("thread", "alignment")))

namespace emu {
template <size_t N>
struct BitsOf;
template <>
struct BitsOf<2> { using type = unsigned short; };
template <>
struct BitsOf<4> { using type = unsigned; };
template <>
struct BitsOf<8> { using type = unsigned long long; };
template <>
struct BitsOf<16> { using type = unsigned __int128; };

template <class T, class F>
EMU_UNCHECKED inline T change_bits(T* address, F change) {
    using Bits = typename BitsOf<sizeof(T)>::type;
    auto* bits = reinterpret_cast<Bits*>(address);
    Bits old_bits = __atomic_load_n(bits, __ATOMIC_SEQ_CST), new_bits;
    T old_value;
    do {
        std::memcpy(static_cast<void*>(&old_value), &old_bits, sizeof old_value);
        const T new_value = change(old_value);
        std::memcpy(&new_bits, &new_value, sizeof new_bits);
    } while (!__atomic_compare_exchange_n(bits, &old_bits, new_bits, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return old_value;
}
template <class T, class F>
inline T update(T* address, F change, int line, Scope scope = Scope::Device) {
    before_atomic(address, sizeof(T), line, scope);
    return change_bits(address, change);
}
template <class T>
using Given = typename identity<T>::type;   // takes no part in deduction
}  // namespace emu

#define EMU_ATOMIC_ONE(name, changed, scope)                                                               \
    template <class T>                                                                                     \
    inline T name(T* address, ::emu::Given<T> value, EMU_LINE) {                                           \
        return ::emu::update(address, [value](T old) -> T { return changed; }, emu_line, ::emu::Scope::scope); \
    }
#define EMU_ATOMIC(name, changed)                  \
    EMU_ATOMIC_ONE(name, changed, Device)          \
    EMU_ATOMIC_ONE(name##_block, changed, Block)   \
    EMU_ATOMIC_ONE(name##_system, changed, Device)
EMU_ATOMIC(atomicAdd, old + value)
EMU_ATOMIC(atomicSub, old - value)
EMU_ATOMIC(atomicMin, value < old ? value : old)
EMU_ATOMIC(atomicMax, value > old ? value : old)
EMU_ATOMIC(atomicAnd, old & value)
EMU_ATOMIC(atomicOr, old | value)
EMU_ATOMIC(atomicXor, old ^ value)
#undef EMU_ATOMIC
#undef EMU_ATOMIC_ONE

#define EMU_ATOMIC_OF_SCOPE(suffix, scope)                                                                          \
    template <class T>                                                                                              \
    inline T atomicExch##suffix(T* address, ::emu::Given<T> value, EMU_LINE) {                                      \
        ::emu::before_exchange(address, sizeof(T), emu_line, ::emu::Scope::scope);                                  \
        return ::emu::change_bits(address, [value](T) -> T { return value; });                                      \
    }                                                                                                               \
    inline unsigned atomicInc##suffix(unsigned* address, unsigned limit, EMU_LINE) {                                \
        auto change = [limit](unsigned old) { return old >= limit ? 0u : old + 1; };                                \
        return ::emu::update(address, change, emu_line, ::emu::Scope::scope);                                       \
    }                                                                                                               \
    inline unsigned atomicDec##suffix(unsigned* address, unsigned limit, EMU_LINE) {                                \
        auto change = [limit](unsigned old) { return old == 0 || old > limit ? limit : old - 1; };                  \
        return ::emu::update(address, change, emu_line, ::emu::Scope::scope);                                       \
    }                                                                                                               \
    template <class T>                                                                                              \
    inline T atomicCAS##suffix(T* address, ::emu::Given<T> expected, ::emu::Given<T> desired, EMU_LINE) {           \
        ::emu::before_compare(address, sizeof(T), emu_line, ::emu::Scope::scope);                                   \
        return ::emu::change_bits(address, [=](T old) -> T { return old == expected ? desired : old; });            \
    }
EMU_ATOMIC_OF_SCOPE(, Device)
EMU_ATOMIC_OF_SCOPE(_block, Block)
EMU_ATOMIC_OF_SCOPE(_system, Device)
#undef EMU_ATOMIC_OF_SCOPE

#define EMU_LOAD(name) \
    template <class T> \
    __attribute__((always_inline)) inline T name(const T* address) { return *address; }
EMU_LOAD(__ldg)
EMU_LOAD(__ldcg)
EMU_LOAD(__ldca)
EMU_LOAD(__ldcs)
EMU_LOAD(__ldlu)
#undef EMU_LOAD
template <class T>
EMU_UNCHECKED inline T __ldcv(const T* address, EMU_LINE) {   // volatile: another thread may write it at the same time
    T value;
    ::emu::before_volatile(address, sizeof(T), false, emu_line);
    asm volatile("" ::: "memory");
    std::memcpy(static_cast<void*>(&value), address, sizeof value);
    return value;
}
#define EMU_STORE(name) \
    template <class T>  \
    __attribute__((always_inline)) inline void name(T* address, ::emu::Given<T> value) { *address = value; }
EMU_STORE(__stcg)
EMU_STORE(__stcs)
EMU_STORE(__stwb)
EMU_STORE(__stwt)
#undef EMU_STORE
