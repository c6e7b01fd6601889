// CUDA's device functions for numbers. Approximate instructions are computed exactly: a GPU is a little worse.
#pragma once
#include <math.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "runtime.h"

namespace emu {
template <class To, class From>
inline To bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "a reinterpretation keeps the size");
    To result;
    std::memcpy(&result, &value, sizeof result);
    return result;
}
// Conversions saturate and turn a NaN into zero, as the hardware's do; in C++ both are undefined.
template <class To, class From>
inline To saturate(From value) {
    if (std::isnan(value)) return 0;
    if (value <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (value >= static_cast<From>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return static_cast<To>(value);
}
template <class T>
inline T clamp01(T x) {
    return x > 0 ? (x < 1 ? x : T(1)) : T(0);
}
}  // namespace emu

// ---- roots, reciprocals and the functions CUDA adds to C's
inline float rsqrtf(float x) { return float(1.0 / std::sqrt(double(x))); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / std::cbrt(x); }
inline double rcbrt(double x) { return 1.0 / std::cbrt(x); }
inline float sinpif(float x) { return float(std::sin(M_PI * std::fmod(double(x), 2.0))); }
inline float cospif(float x) { return float(std::cos(M_PI * std::fmod(double(x), 2.0))); }
inline double sinpi(double x) { return std::sin(M_PI * std::fmod(x, 2.0)); }
inline double cospi(double x) { return std::cos(M_PI * std::fmod(x, 2.0)); }
inline float normcdff(float x) { return float(0.5 * std::erfc(-double(x) * M_SQRT1_2)); }
inline double normcdf(double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }
inline float rhypotf(float a, float b) { return 1.0f / std::hypot(a, b); }
inline double rhypot(double a, double b) { return 1.0 / std::hypot(a, b); }
inline float norm3df(float a, float b, float c) { return std::hypot(a, b, c); }
inline double norm3d(double a, double b, double c) { return std::hypot(a, b, c); }
inline float rnorm3df(float a, float b, float c) { return 1.0f / std::hypot(a, b, c); }
inline float fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return ::emu::clamp01(x); }

// ---- intrinsics with a fast or a rounded form
#define EMU_FAST(name, call) \
    inline float name(float x) { return call; }
EMU_FAST(__expf, std::exp(x))
EMU_FAST(__exp10f, float(std::pow(10.0, double(x))))
EMU_FAST(__logf, std::log(x))
EMU_FAST(__log2f, std::log2(x))
EMU_FAST(__log10f, std::log10(x))
EMU_FAST(__sinf, std::sin(x))
EMU_FAST(__cosf, std::cos(x))
EMU_FAST(__tanf, std::tan(x))
EMU_FAST(__tanhf, std::tanh(x))
EMU_FAST(__frsqrt_rn, float(1.0 / std::sqrt(double(x))))
#undef EMU_FAST
inline float __powf(float a, float b) { return std::pow(a, b); }
inline float __fdividef(float a, float b) { return a / b; }
inline void __sincosf(float x, float* s, float* c) {
    *s = std::sin(x);
    *c = std::cos(x);
}
// Directed roundings differ from round-to-nearest in the last bit only; all four are computed to nearest.
#define EMU_ROUNDED(mode)                                                                         \
    inline float __fadd_##mode(float a, float b) { return a + b; }                                \
    inline float __fsub_##mode(float a, float b) { return a - b; }                                \
    inline float __fmul_##mode(float a, float b) { return a * b; }                                \
    inline float __fdiv_##mode(float a, float b) { return a / b; }                                \
    inline float __fmaf_##mode(float a, float b, float c) { return std::fma(a, b, c); }           \
    inline float __fmaf_ieee_##mode(float a, float b, float c) { return std::fma(a, b, c); }      \
    inline float __fsqrt_##mode(float a) { return std::sqrt(a); }                                 \
    inline float __frcp_##mode(float a) { return 1.0f / a; }                                      \
    inline double __dadd_##mode(double a, double b) { return a + b; }                             \
    inline double __dsub_##mode(double a, double b) { return a - b; }                             \
    inline double __dmul_##mode(double a, double b) { return a * b; }                             \
    inline double __ddiv_##mode(double a, double b) { return a / b; }                             \
    inline double __fma_##mode(double a, double b, double c) { return std::fma(a, b, c); }        \
    inline double __dsqrt_##mode(double a) { return std::sqrt(a); }                               \
    inline double __drcp_##mode(double a) { return 1.0 / a; }                                     \
    inline float __double2float_##mode(double x) { return float(x); }                             \
    inline float __int2float_##mode(int x) { return float(x); }                                   \
    inline float __uint2float_##mode(unsigned x) { return float(x); }                             \
    inline float __ll2float_##mode(long long x) { return float(x); }                              \
    inline float __ull2float_##mode(unsigned long long x) { return float(x); }                    \
    inline double __ll2double_##mode(long long x) { return double(x); }                           \
    inline double __ull2double_##mode(unsigned long long x) { return double(x); }
EMU_ROUNDED(rn)
EMU_ROUNDED(rz)
EMU_ROUNDED(ru)
EMU_ROUNDED(rd)
#undef EMU_ROUNDED
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
#define EMU_TO_INTEGER(mode, rounded)                                                                       \
    inline int __float2int_##mode(float x) { return ::emu::saturate<int>(rounded(x)); }                     \
    inline unsigned __float2uint_##mode(float x) { return ::emu::saturate<unsigned>(rounded(x)); }          \
    inline long long __float2ll_##mode(float x) { return ::emu::saturate<long long>(rounded(x)); }          \
    inline unsigned long long __float2ull_##mode(float x) {                                                 \
        return ::emu::saturate<unsigned long long>(rounded(x));                                             \
    }                                                                                                       \
    inline int __double2int_##mode(double x) { return ::emu::saturate<int>(rounded(x)); }                   \
    inline unsigned __double2uint_##mode(double x) { return ::emu::saturate<unsigned>(rounded(x)); }        \
    inline long long __double2ll_##mode(double x) { return ::emu::saturate<long long>(rounded(x)); }        \
    inline unsigned long long __double2ull_##mode(double x) {                                               \
        return ::emu::saturate<unsigned long long>(rounded(x));                                             \
    }
EMU_TO_INTEGER(rn, std::nearbyint)
EMU_TO_INTEGER(rz, std::trunc)
EMU_TO_INTEGER(ru, std::ceil)
EMU_TO_INTEGER(rd, std::floor)
#undef EMU_TO_INTEGER

// ---- bits
inline float __int_as_float(int x) { return ::emu::bits<float>(x); }
inline int __float_as_int(float x) { return ::emu::bits<int>(x); }
inline float __uint_as_float(unsigned x) { return ::emu::bits<float>(x); }
inline unsigned __float_as_uint(float x) { return ::emu::bits<unsigned>(x); }
inline double __longlong_as_double(long long x) { return ::emu::bits<double>(x); }
inline long long __double_as_longlong(double x) { return ::emu::bits<long long>(x); }
inline int __double2hiint(double x) { return int(::emu::bits<unsigned long long>(x) >> 32); }
inline int __double2loint(double x) { return int(::emu::bits<unsigned long long>(x)); }
inline double __hiloint2double(int high, int low) {
    return ::emu::bits<double>((unsigned long long)unsigned(high) << 32 | unsigned(low));
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)(x)) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned long long __brevll(unsigned long long x) {
    unsigned long long result = 0;
    for (int i = 0; i < 64; i++) result |= (x >> i & 1) << (63 - i);
    return result;
}
inline unsigned __brev(unsigned x) { return unsigned(__brevll(x) >> 32); }
inline unsigned __fns(unsigned mask, unsigned base, int offset) {
    const int step = offset < 0 ? -1 : 1;
    if (offset == 0) return mask >> (base & 31) & 1 ? base : 0xffffffffu;
    for (int i = int(base); i >= 0 && i < 32; i += step) {
        if (mask >> i & 1 && (offset -= step) == 0) return unsigned(i);
    }
    return 0xffffffffu;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) result |= unsigned(both >> (8 * (selector >> 4 * i & 7)) & 0xFF) << 8 * i;
    return result;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
inline int __mul24(int a, int b) { return a * b; }
inline unsigned __umul24(unsigned a, unsigned b) { return a * b; }
inline unsigned __sad(int a, int b, unsigned c) { return unsigned(a > b ? a - b : b - a) + c; }
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a > b ? a - b : b - a) + c; }
inline int __hadd(int a, int b) { return int(((long long)a + b) >> 1); }
inline unsigned __uhadd(unsigned a, unsigned b) { return unsigned(((unsigned long long)a + b) >> 1); }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    by &= 31;
    return by ? high << by | low >> (32 - by) : high;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    by &= 31;
    return by ? high << (32 - by) | low >> by : low;
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned by) {
    return by >= 32 ? low : __funnelshift_l(low, high, by);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned by) {
    return by >= 32 ? high : __funnelshift_r(low, high, by);
}
inline int __dp4a(int a, int b, int sum) {
    for (int i = 0; i < 4; i++) sum += int(static_cast<signed char>(a >> 8 * i)) * static_cast<signed char>(b >> 8 * i);
    return sum;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
    for (int i = 0; i < 4; i++) sum += (a >> 8 * i & 0xFF) * (b >> 8 * i & 0xFF);
    return sum;
}

// ---- min and max for mixed types, as CUDA overloads them
#define EMU_MINMAX(A, B, R)                                    \
    inline constexpr R min(A a, B b) {                         \
        const R x = static_cast<R>(a), y = static_cast<R>(b);  \
        return x < y ? x : y;                                  \
    }                                                          \
    inline constexpr R max(A a, B b) {                         \
        const R x = static_cast<R>(a), y = static_cast<R>(b);  \
        return x > y ? x : y;                                  \
    }
#define EMU_MINMAX_FLOAT(A, B, R)                        \
    inline R min(A a, B b) { return std::fmin(R(a), R(b)); } \
    inline R max(A a, B b) { return std::fmax(R(a), R(b)); }
#define EMU_MINMAX_PAIR(S, U)  \
    EMU_MINMAX(S, S, S)        \
    EMU_MINMAX(U, U, U)        \
    EMU_MINMAX(S, U, U)        \
    EMU_MINMAX(U, S, U)
EMU_MINMAX_PAIR(int, unsigned)
EMU_MINMAX_PAIR(long, unsigned long)
EMU_MINMAX_PAIR(long long, unsigned long long)
EMU_MINMAX(int, long, long)
EMU_MINMAX(long, int, long)
EMU_MINMAX(int, long long, long long)
EMU_MINMAX(long long, int, long long)
EMU_MINMAX_FLOAT(float, float, float)
EMU_MINMAX_FLOAT(double, double, double)
EMU_MINMAX_FLOAT(float, double, double)
EMU_MINMAX_FLOAT(double, float, double)
#undef EMU_MINMAX
#undef EMU_MINMAX_FLOAT
#undef EMU_MINMAX_PAIR
inline unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned umax(unsigned a, unsigned b) { return a > b ? a : b; }

// ---- the rest
inline long long clock64() { return (long long)(::emu::clock_ticks()); }
inline unsigned long long __globaltimer() { return ::emu::clock_ticks(); }
[[noreturn]] inline void __trap(EMU_LINE) { ::emu::fail("trap", emu_line, "The kernel executed __trap()."); }
inline size_t __cvta_generic_to_shared(const void* pointer) { return ::emu::shared_window(pointer); }
inline void* __cvta_shared_to_generic(size_t address) { return ::emu::from_shared_window(uint32_t(address)); }
inline size_t __cvta_generic_to_global(const void* pointer) { return reinterpret_cast<size_t>(pointer); }
inline void* __cvta_global_to_generic(size_t address) { return reinterpret_cast<void*>(address); }
inline unsigned __isShared(const void* pointer) { return ::emu::shared_window(pointer) != 0; }
inline unsigned __isGlobal(const void* pointer) { return ::emu::shared_window(pointer) == 0; }
#define __builtin_assume(condition) ((void)0)
#define __builtin_assume_aligned(pointer, ...) (pointer)
#define __assume(condition) ((void)0)
