// Shadows torch's header of this name, which needs CUDA libraries.
#pragma once
#include <ATen/cuda/CUDAContext.h>
