// torch's types as CUDA's compiler sees them: Half and BFloat16 convert from and to CUDA's own, and accessors may
// have restricted pointers. Comes before all of torch's other headers.
#pragma once
#include <cuda_runtime.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#if __has_include(<torch/headeronly/util/Half.h>)
#include <torch/headeronly/macros/Macros.h>
#define __CUDACC__
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>
#if __has_include(<torch/headeronly/core/TensorAccessor.h>)
#include <torch/headeronly/core/TensorAccessor.h>
#define EMU_RESTRICT_TRAITS torch::headeronly::RestrictPtrTraits
#endif
#undef __CUDACC__
#else
#include <c10/macros/Macros.h>
#define __CUDACC__
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#undef __CUDACC__
#endif

namespace at {
#ifdef EMU_RESTRICT_TRAITS
using EMU_RESTRICT_TRAITS;
#else
template <typename T>
struct RestrictPtrTraits {
    typedef T* __restrict__ PtrType;
};
#endif
}  // namespace at
