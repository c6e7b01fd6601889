// Shadows torch's header of this name, which defines these functions for nvcc only.
#pragma once
#include <emu/emu.h>

namespace c10::cuda::compat {
using std::abs;
using std::ceil;
using std::copysign;
using std::exp;
using std::floor;
using std::log;
using std::log1p;
using std::pow;
using std::sqrt;
using std::tan;
using std::tanh;
using ::max;
using ::min;
using ::normcdf;
using ::rsqrt;
using ::sincos;
inline void sincos(float x, float* s, float* c) { __sincosf(x, s, c); }
inline float normcdf(float x) { return ::normcdff(x); }
}  // namespace c10::cuda::compat
