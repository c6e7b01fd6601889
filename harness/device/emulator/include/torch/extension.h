// torch/extension.h also brings torch::nn, optimisers and data loaders, which doubles the time of a build.
#pragma once
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/types.h>
