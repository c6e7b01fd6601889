// What PTX computes with, as translate/ptx_arithmetic.py writes it. Nothing here needs the operators and conversions of
// __half, which torch tells nvcc to leave out.
#pragma once
#include "half.h"
#include "math.h"

namespace emu::ptx {
// A value as something that C++'s operators take.
inline float number(__half x) { return __half2float(x); }
inline float number(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T>
inline T number(T x) { return x; }

// A formula of numbers, for each part of operands that are two halves.
template <class T, class F, class... V>
inline T by_parts(F formula, V... values) {
    if constexpr (std::is_same_v<T, __half>) {
        return __float2half_rn(float(formula(number(values)...)));
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        return __float2bfloat16_rn(float(formula(number(values)...)));
    } else if constexpr (std::is_same_v<T, __half2>) {
        return __half2(by_parts<__half>(formula, values.x...), by_parts<__half>(formula, values.y...));
    } else if constexpr (std::is_same_v<T, __nv_bfloat162>) {
        return __nv_bfloat162(by_parts<__nv_bfloat16>(formula, values.x...),
                              by_parts<__nv_bfloat16>(formula, values.y...));
    } else {
        return static_cast<T>(formula(values...));
    }
}
template <class T>
inline T clamped(T value) {
    return by_parts<T>([](auto x) { return clamp01(x); }, value);
}

template <class T>
inline T relu(T x) {
    return x > 0 || x != x ? x : T(0);
}
template <bool KeepsNan, class T>
inline T smaller(T a, T b) {
    if (a != a) return KeepsNan ? a : b;
    if (b != b) return KeepsNan ? b : a;
    return b < a ? b : a;
}
template <bool KeepsNan, class T>
inline T larger(T a, T b) {
    if (a != a) return KeepsNan ? a : b;
    if (b != b) return KeepsNan ? b : a;
    return a < b ? b : a;
}
template <class T>
inline bool unordered(T a, T b) {
    return a != a || b != b;
}
inline bool inverted(bool x) { return !x; }
template <class T>
inline T inverted(T x) { return T(~x); }

template <class T>
inline T low(T a, T b) {
    return T(uint64_t(a) * uint64_t(b));
}
template <class T>
inline T high(T a, T b) {
    using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
    return T(Wide(a) * Wide(b) >> sizeof(T) * 8);
}
template <class T>
inline T field(T value, uint32_t at, uint32_t length) {
    at &= 255, length &= 255;
    constexpr uint32_t bits = sizeof(T) * 8;
    if (!length) return 0;
    const bool negative = std::is_signed_v<T> && value >> (at + length > bits ? bits - 1 : at + length - 1) & 1;
    const T shifted = at >= bits ? T(std::is_signed_v<T> && value < 0 ? -1 : 0) : T(value >> at);
    if (length >= bits) return shifted;
    const T mask = T((T(1) << length) - 1);
    return negative ? T(shifted | ~mask) : T(shifted & mask);
}
template <class T>
inline T inserted(T value, T into, uint32_t at, uint32_t length) {
    at &= 255, length &= 255;
    constexpr uint32_t bits = sizeof(T) * 8;
    if (at >= bits || !length) return into;
    const T mask = T((length >= bits ? T(~T(0)) : T((T(1) << length) - 1)) << at);
    return T((into & ~mask) | (T(value << at) & mask));
}

// A number as another type. From a floating one to an integer it saturates always, else where the instruction says so.
template <class T, bool Limited, class From>
inline T converted(From value) {
    if constexpr (std::is_same_v<T, __half>) {
        return __float2half_rn(float(Limited ? clamp01(value) : value));
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        return __float2bfloat16_rn(float(Limited ? clamp01(value) : value));
    } else if constexpr (std::is_floating_point_v<T>) {
        return T(Limited ? T(clamp01(T(value))) : T(value));
    } else if constexpr (std::is_floating_point_v<From>) {
        return saturate<T>(value);
    } else if constexpr (Limited) {
        const __int128 wide = value, least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
        return T(wide < least ? least : wide > most ? most : wide);
    } else {
        return static_cast<T>(value);
    }
}
inline float to_tf32(float x) {
    const uint32_t word = bits<uint32_t>(x);
    return x != x ? x : bits<float>((word + 0x1000u) & ~0x1FFFu);
}
}  // namespace emu::ptx
