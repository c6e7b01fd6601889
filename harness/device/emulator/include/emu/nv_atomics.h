// nvcc's atomic builtins, which name the order and the scope of each operation.
#pragma once
#include "atomics.h"
#include "sync.h"

enum : int {
    __NV_ATOMIC_RELAXED = __ATOMIC_RELAXED, __NV_ATOMIC_CONSUME = __ATOMIC_CONSUME,
    __NV_ATOMIC_ACQUIRE = __ATOMIC_ACQUIRE, __NV_ATOMIC_RELEASE = __ATOMIC_RELEASE,
    __NV_ATOMIC_ACQ_REL = __ATOMIC_ACQ_REL, __NV_ATOMIC_SEQ_CST = __ATOMIC_SEQ_CST
};
enum : int { __NV_THREAD_SCOPE_THREAD, __NV_THREAD_SCOPE_BLOCK, __NV_THREAD_SCOPE_CLUSTER, __NV_THREAD_SCOPE_DEVICE,
             __NV_THREAD_SCOPE_SYSTEM };

namespace emu {
inline Scope scope_of(int scope) { return scope <= __NV_THREAD_SCOPE_BLOCK ? Scope::Block : Scope::Device; }
inline void fence_of_order(int order, int scope) {
    if (order >= __ATOMIC_RELEASE) fence(scope_of(scope) == Scope::Device);
}
}  // namespace emu

inline void __nv_atomic_thread_fence(int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
    asm volatile("" ::: "memory");
    if (order != __ATOMIC_RELAXED) ::emu::fence(::emu::scope_of(scope) == ::emu::Scope::Device);
}
#define EMU_NV_ATOMIC(name, changed)                                                                            \
    template <class T>                                                                                          \
    inline T name(T* address, ::emu::Given<T> value, int order, int scope = __NV_THREAD_SCOPE_SYSTEM, EMU_LINE) { \
        ::emu::fence_of_order(order, scope);                                                                    \
        return ::emu::update(address, [value](T old) -> T { return changed; }, emu_line, ::emu::scope_of(scope)); \
    }
EMU_NV_ATOMIC(__nv_atomic_fetch_add, T(old + value))
EMU_NV_ATOMIC(__nv_atomic_fetch_sub, T(old - value))
EMU_NV_ATOMIC(__nv_atomic_fetch_and, T(old & value))
EMU_NV_ATOMIC(__nv_atomic_fetch_or, T(old | value))
EMU_NV_ATOMIC(__nv_atomic_fetch_xor, T(old ^ value))
EMU_NV_ATOMIC(__nv_atomic_fetch_min, value < old ? value : old)
EMU_NV_ATOMIC(__nv_atomic_fetch_max, value > old ? value : old)
EMU_NV_ATOMIC(__nv_atomic_exchange_n, value)
#undef EMU_NV_ATOMIC
template <class T>
inline void __nv_atomic_add(T* p, ::emu::Given<T> v, int order, int scope = __NV_THREAD_SCOPE_SYSTEM, EMU_LINE) {
    __nv_atomic_fetch_add(p, v, order, scope, emu_line);
}
template <class T>
EMU_UNCHECKED inline std::remove_const_t<T> __nv_atomic_load_n(T* address, int, int scope = __NV_THREAD_SCOPE_SYSTEM,
                                                               EMU_LINE) {
    ::emu::before_atomic_load(address, sizeof(T), emu_line, ::emu::scope_of(scope));
    std::remove_const_t<T> value;
    asm volatile("" ::: "memory");
    std::memcpy(static_cast<void*>(&value), address, sizeof value);
    return value;
}
template <class T>
inline void __nv_atomic_load(T* address, std::remove_const_t<T>* out, int order, int scope = __NV_THREAD_SCOPE_SYSTEM,
                             EMU_LINE) {
    *out = __nv_atomic_load_n(address, order, scope, emu_line);
}
template <class T>
inline void __nv_atomic_store_n(T* address, ::emu::Given<T> value, int order, int scope = __NV_THREAD_SCOPE_SYSTEM,
                                EMU_LINE) {
    __nv_atomic_exchange_n(address, value, order, scope, emu_line);
}
template <class T>
inline void __nv_atomic_store(T* address, T* value, int order, int scope = __NV_THREAD_SCOPE_SYSTEM, EMU_LINE) {
    __nv_atomic_exchange_n(address, *value, order, scope, emu_line);
}
template <class T>
inline void __nv_atomic_exchange(T* address, T* value, T* out, int order, int scope = __NV_THREAD_SCOPE_SYSTEM,
                                 EMU_LINE) {
    *out = __nv_atomic_exchange_n(address, *value, order, scope, emu_line);
}
template <class T>
inline bool __nv_atomic_compare_exchange_n(T* address, T* expected, ::emu::Given<T> desired, bool, int success, int,
                                           int scope = __NV_THREAD_SCOPE_SYSTEM, EMU_LINE) {
    ::emu::fence_of_order(success, scope);
    const T wanted = *expected;
    auto change = [=](T old) -> T { return old == wanted ? desired : old; };
    const T old = ::emu::update(address, change, emu_line, ::emu::scope_of(scope));
    if (old != wanted) *expected = old;
    return old == wanted;
}
template <class T>
inline bool __nv_atomic_compare_exchange(T* address, T* expected, T* desired, bool weak, int success, int failure,
                                         int scope = __NV_THREAD_SCOPE_SYSTEM, EMU_LINE) {
    return __nv_atomic_compare_exchange_n(address, expected, *desired, weak, success, failure, scope, emu_line);
}
