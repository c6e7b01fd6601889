// torch/extension.h also brings torch::nn, optimisers and data loaders, which doubles the time of a build.
// Sources of kernels get pybind11 where they use it (see toolchain.py).
#pragma once
#include <torch/types.h>
#ifndef EMU_WITHOUT_PYTHON
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#endif
