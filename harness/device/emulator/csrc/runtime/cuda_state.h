// The state behind the CUDA runtime API: the last error, and limits raised for a kernel.
#pragma once
#include <cuda_runtime.h>

#include "findings.h"

namespace emu {
size_t dynamic_shared_limit(const void* function);   // all functions' largest when `function` is null
unsigned blocks_per_multiprocessor(uint64_t threads, size_t shared_bytes);
cudaError_t fail_with(cudaError_t error);   // gives it back, for cudaGetLastError
// `finding` becomes a finding unless the submission looks at the error.
void set_error(cudaError_t error, const RawFinding* finding);
}  // namespace emu
