// Everything a translated CUDA source needs beside CUDA's own headers.
#pragma once
#include <cuda_runtime.h>

// nvcc's keywords that host_defines.h leaves to the device compiler.
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __maxnreg__
#define __maxnreg__(...)
#undef __cluster_dims__
#define __cluster_dims__(...)
#undef __grid_constant__
#define __grid_constant__
#undef __managed__
#define __managed__
#undef __noinline__
#define __noinline__ __attribute__((noinline))
#undef __forceinline__
#define __forceinline__ inline __attribute__((always_inline))

#include "api.h"
#include "atomics.h"
#include "half.h"
#include "launch.h"
#include "math.h"
#include "memory.h"
#include "nv_atomics.h"
#include "ptx.h"
#include "runtime.h"
#include "sync.h"
#include "variables.h"
