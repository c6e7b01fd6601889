// Shadows torch's header of this name, which needs CUDA libraries.
#pragma once
#include <cublas_v2.h>
#include <emu/torch_cuda.h>

namespace at::cuda {
inline cublasHandle_t getCurrentCUDABlasHandle(bool = true) { return static_cast<cublasHandle_t>(emu_blas_handle()); }
}  // namespace at::cuda
