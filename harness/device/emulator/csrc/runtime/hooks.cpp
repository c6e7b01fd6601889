// The functions that -fsanitize=thread,alignment,bounds makes compiled code call. There is no libtsan: these
// are the emulator's own, and an access is looked at before it happens.
#include <cstdint>
#include <cstring>
#include <cstdio>
#include <cstdlib>

#include "check.h"

#define CALLER reinterpret_cast<uintptr_t>(__builtin_return_address(0))

namespace {
void plain(const void* address, size_t bytes, bool write, uintptr_t pc) {
    if (!emu::current || !emu::options.check) return;
    emu::checked_access({reinterpret_cast<uintptr_t>(address), bytes, write, emu::Kind::Plain, pc, 0});
}
void shared_between(const void* address, size_t bytes, bool write, uintptr_t pc) {
    if (!emu::current) return;
    if (!write) emu::give_way();
    const auto at = reinterpret_cast<uintptr_t>(address);
    emu::checked_access({at, bytes, write, emu::volatile_kind(at, write, pc), pc, 0});
}

// What releases, or is sequentially consistent, fences what came before it.
void before_ordered_atomic(const volatile void* address, size_t bytes, int order) {
    const bool narrow = emu::current && emu::current->narrow_atomics;
    if (emu::current && emu::options.check && order >= __ATOMIC_RELEASE && !narrow) emu::remember_fence();
    emu::before_atomic(address, bytes, 0, narrow ? emu::Scope::Block : emu::Scope::Device);
}

struct SourceLocation {   // the layout of libubsan
    const char* file;
    uint32_t line, column;
};
struct TypeName {
    uint16_t kind, info;
    char name[1];
};
struct BoundsData {
    SourceLocation at;
    const TypeName *array, *index;
};
struct MismatchData {
    SourceLocation at;
    const TypeName* type;
    unsigned char log_alignment, check_kind;
};
}  // namespace

extern "C" {
#define HOOKS(n)                                                                             \
    void __tsan_read##n(void* p) { plain(p, n, false, CALLER); }                             \
    void __tsan_write##n(void* p) { plain(p, n, true, CALLER); }                             \
    void __tsan_unaligned_read##n(void* p) { plain(p, n, false, CALLER); }                   \
    void __tsan_unaligned_write##n(void* p) { plain(p, n, true, CALLER); }                   \
    void __tsan_volatile_read##n(void* p) { shared_between(p, n, false, CALLER); }           \
    void __tsan_volatile_write##n(void* p) { shared_between(p, n, true, CALLER); }           \
    void __tsan_unaligned_volatile_read##n(void* p) { shared_between(p, n, false, CALLER); } \
    void __tsan_unaligned_volatile_write##n(void* p) { shared_between(p, n, true, CALLER); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
#undef HOOKS
void __tsan_read_range(void* p, size_t n) { plain(p, n, false, CALLER); }
void __tsan_write_range(void* p, size_t n) { plain(p, n, true, CALLER); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
void __tsan_atomic_thread_fence(int) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    emu::fence(true);
}
void __tsan_atomic_signal_fence(int) {}

// C++ atomics in the submission, and cuda::atomic.
#define ORDER __ATOMIC_SEQ_CST
#define ATOMIC_HOOK(p, order) before_ordered_atomic(p, sizeof *p, order)
#define ATOMICS(bits, T)                                                                                    \
    T __tsan_atomic##bits##_load(const volatile T* p, int order) {                                          \
        ATOMIC_HOOK(p, order);                                                                              \
        return __atomic_load_n(p, ORDER);                                                                   \
    }                                                                                                       \
    void __tsan_atomic##bits##_store(volatile T* p, T v, int order) {                                       \
        ATOMIC_HOOK(p, order);                                                                              \
        __atomic_store_n(p, v, ORDER);                                                                      \
    }                                                                                                       \
    T __tsan_atomic##bits##_exchange(volatile T* p, T v, int order) {                                       \
        ATOMIC_HOOK(p, order);                                                                              \
        return __atomic_exchange_n(p, v, ORDER);                                                            \
    }                                                                                                       \
    T __tsan_atomic##bits##_fetch_add(volatile T* p, T v, int order) {                                      \
        ATOMIC_HOOK(p, order);                                                                              \
        return __atomic_fetch_add(p, v, ORDER);                                                             \
    }                                                                                                       \
    T __tsan_atomic##bits##_fetch_sub(volatile T* p, T v, int order) {                                      \
        ATOMIC_HOOK(p, order);                                                                              \
        return __atomic_fetch_sub(p, v, ORDER);                                                             \
    }                                                                                                       \
    T __tsan_atomic##bits##_fetch_and(volatile T* p, T v, int order) {                                      \
        ATOMIC_HOOK(p, order);                                                                              \
        return __atomic_fetch_and(p, v, ORDER);                                                             \
    }                                                                                                       \
    T __tsan_atomic##bits##_fetch_or(volatile T* p, T v, int order) {                                       \
        ATOMIC_HOOK(p, order);                                                                              \
        return __atomic_fetch_or(p, v, ORDER);                                                              \
    }                                                                                                       \
    T __tsan_atomic##bits##_fetch_xor(volatile T* p, T v, int order) {                                      \
        ATOMIC_HOOK(p, order);                                                                              \
        return __atomic_fetch_xor(p, v, ORDER);                                                             \
    }                                                                                                       \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T v, int order, int) {    \
        ATOMIC_HOOK(p, order);                                                                              \
        return __atomic_compare_exchange_n(p, expected, v, 0, ORDER, ORDER);                                \
    }                                                                                                       \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* expected, T v, int a, int b) {        \
        return __tsan_atomic##bits##_compare_exchange_strong(p, expected, v, a, b);                         \
    }
ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)
#undef ATOMICS

void __ubsan_handle_out_of_bounds(BoundsData* data, unsigned long index) {
    if (!emu::current) return;
    emu::fail("out_of_bounds", int(data->at.line), "Index %ld is out of bounds for an array of type %s.", long(index),
              data->array->name);
}
void __ubsan_handle_type_mismatch_v1(MismatchData* data, unsigned long address) {
    const unsigned long unit = 1ul << data->log_alignment;
    if (!emu::current || !address || !(address & (unit - 1))) return;   // a null pointer faults by itself
    const int line = emu::submission_line(data->at.file, data->at.line);
    emu::note_and_stop("misaligned_access",
                       emu::text("An access as %s needs an address that is a multiple of %lu bytes; this one is %lu "
                                 "bytes off.", data->type->name, unit, address & (unit - 1)), line, line ? 0 : CALLER);
}
void __wrap___assert_fail(const char* what, const char*, unsigned line, const char* function) {
    if (!emu::current) {   // the host's own: as without the emulator
        fprintf(stderr, "Assertion %s failed in %s, line %u.\n", what, function, line);
        abort();
    }
    emu::fail("assertion", int(line), "The kernel's assertion failed: %s.", what);
}
}
