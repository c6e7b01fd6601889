// Tensors, their operators and dispatch by type: of ATen what sources of kernels use.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/Dispatch.h>
#include <ATen/DimVector.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Logging.h>
