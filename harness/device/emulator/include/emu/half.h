// What CUDA's own fp16 and bf16 headers leave out when a host compiler reads them.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>

#include "math.h"

namespace emu {
inline float relu(float x) { return x > 0 || std::isnan(x) ? x : 0.0f; }
// The product of two halfs is exact in double and the sum rounds once more only below float's precision.
inline float fma_once(float a, float b, float c) { return float(std::fma(double(a), double(b), double(c))); }
}  // namespace emu

#define EMU_HALF_FMA(T, T2, from, to)                                                                          \
    inline T __hfma(T a, T b, T c) { return from(::emu::fma_once(to(a), to(b), to(c))); }                      \
    inline T __hfma_sat(T a, T b, T c) { return from(::emu::clamp01(to(__hfma(a, b, c)))); }                   \
    inline T __hfma_relu(T a, T b, T c) { return from(::emu::relu(to(__hfma(a, b, c)))); }                     \
    inline T2 __hfma2(T2 a, T2 b, T2 c) { return T2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); }           \
    inline T2 __hfma2_sat(T2 a, T2 b, T2 c) { return T2(__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)); } \
    inline T2 __hfma2_relu(T2 a, T2 b, T2 c) {                                                                 \
        return T2(__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y));                                     \
    }
#define EMU_HALF_UNARY(T, T2, from, to, name, value)     \
    inline T h##name(T a) {                              \
        const float x = to(a);                           \
        return from(value);                              \
    }                                                    \
    inline T2 h2##name(T2 a) { return T2(h##name(a.x), h##name(a.y)); }
#define EMU_HALF_MATH(T, T2, from, to)                                         \
    EMU_HALF_FMA(T, T2, from, to)                                              \
    EMU_HALF_UNARY(T, T2, from, to, sqrt, std::sqrt(x))                        \
    EMU_HALF_UNARY(T, T2, from, to, rsqrt, 1.0f / std::sqrt(x))                \
    EMU_HALF_UNARY(T, T2, from, to, rcp, 1.0f / x)                             \
    EMU_HALF_UNARY(T, T2, from, to, exp, std::exp(x))                          \
    EMU_HALF_UNARY(T, T2, from, to, exp2, std::exp2(x))                        \
    EMU_HALF_UNARY(T, T2, from, to, exp10, std::pow(10.0f, x))                 \
    EMU_HALF_UNARY(T, T2, from, to, log, std::log(x))                          \
    EMU_HALF_UNARY(T, T2, from, to, log2, std::log2(x))                        \
    EMU_HALF_UNARY(T, T2, from, to, log10, std::log10(x))                      \
    EMU_HALF_UNARY(T, T2, from, to, sin, std::sin(x))                          \
    EMU_HALF_UNARY(T, T2, from, to, cos, std::cos(x))                          \
    EMU_HALF_UNARY(T, T2, from, to, tanh, std::tanh(x))                        \
    EMU_HALF_UNARY(T, T2, from, to, floor, std::floor(x))                      \
    EMU_HALF_UNARY(T, T2, from, to, ceil, std::ceil(x))                        \
    EMU_HALF_UNARY(T, T2, from, to, trunc, std::trunc(x))                      \
    EMU_HALF_UNARY(T, T2, from, to, rint, std::nearbyint(x))
EMU_HALF_MATH(__half, __half2, __float2half_rn, __half2float)
EMU_HALF_MATH(__nv_bfloat16, __nv_bfloat162, __float2bfloat16_rn, __bfloat162float)
#undef EMU_HALF_MATH
#undef EMU_HALF_UNARY
#undef EMU_HALF_FMA
