// Shadows torch's header of this name, which needs CUDA libraries.
#pragma once
#include <ATen/cuda/Exceptions.h>

namespace at::cuda {
inline cublasHandle_t getCurrentCUDABlasHandle(bool = true) { return static_cast<cublasHandle_t>(emu_blas_handle()); }
}  // namespace at::cuda
