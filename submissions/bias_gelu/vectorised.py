"""Bias and GELU at the speed of a copy: 16-byte packs, bias in registers, and a cheaper Phi where it cannot show.

The idea: a thread owns one pack of columns, whose bias it reads once, and goes down four rows: four loads are
on their way before the first is used, there is no division, and the blocks number in the thousands for any
large input. What else could slow it down is arithmetic: at 4 TB/s of 16-bit values a multiprocessor has some
28 instructions for each, and erf alone needs as many. So

- the tanh form is computed as v / (1 + exp(-2u)), which is the same function: one exponential, one division;
- 16-bit values take Phi from a rational polynomial times exp(-v^2/2) with an absolute error below 1.5e-7
  (Abramowitz and Stegun, 7.1.26), a thousandth of what rounding the result to 16 bits costs; fp32 takes erf.

Numerics: fp32 between load and store.

Bytes moved: x and y once; the bias once for four rows, from L2.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = "torch::Tensor bias_gelu(torch::Tensor x, torch::Tensor bias, bool tanh_form);"

CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <climits>

constexpr int kThreads = 256, kRows = 4;  // rows that a thread goes down

template <typename T, int kSize>
struct alignas(kSize * sizeof(T)) Pack {  // one load or store
    T at[kSize];
};

// v (1 + tanh(u)) / 2 = v / (1 + exp(-2u)). Far out the exponential is 0 or infinite, and the result v or 0.
__device__ float gelu_tanh(float v) {
    constexpr float kScale = 2.0f * 0.79788456080286536f;  // 2 sqrt(2 / pi)
    const float twice_u = kScale * v * fmaf(0.044715f * v, v, 1.0f);
    return __fdividef(v, 1.0f + __expf(-twice_u));
}

__device__ float gelu_erf(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678118654752f)); }

// One instruction each, to 2 ulp: what CUDA's own functions do beside it is for subnormal numbers.
__device__ float fast_exp2(float v) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(v));
    return result;
}

__device__ float fast_reciprocal(float v) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(v));
    return result;
}

// The tail of the normal distribution beyond |v| is t P(t) exp(-v^2 / 2) / 2 with t = 1 / (1 + p |v| / sqrt(2)), known
// to 8e-8: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26. Their coefficients are halved.
__device__ float gelu_16_bit(float v) {
    const float t = fast_reciprocal(fmaf(0.3275911f * 0.70710678118654752f, fabsf(v), 1.0f));
    const float polynomial = t * fmaf(t, fmaf(t, fmaf(t, fmaf(t, 0.5307027145f, -0.7265760135f), 0.7107068705f),
                                              -0.142248368f), 0.127414796f);
    const float tail = polynomial * fast_exp2(-0.72134752044448170f * v * v);  // log2(e) / 2
    return v * (v < 0.0f ? tail : 1.0f - tail);
}

template <typename T, bool kTanh>
__device__ T gelu(float v) {
    if constexpr (kTanh) return static_cast<T>(gelu_tanh(v));
    return static_cast<T>(sizeof(T) == 2 ? gelu_16_bit(v) : gelu_erf(v));
}

// Thread (c, r) of a block has pack c of the block's columns, in kRows rows blockDim.y apart.
template <typename T, int kSize, bool kTanh>
__global__ void __launch_bounds__(kThreads)
bias_gelu_kernel(const Pack<T, kSize>* x, const Pack<T, kSize>* bias, Pack<T, kSize>* y, int64_t rows, int64_t packs,
                 int column_blocks) {
    const int64_t column = int64_t(blockIdx.x % column_blocks) * blockDim.x + threadIdx.x;
    const int64_t first = int64_t(blockIdx.x / column_blocks) * blockDim.y * kRows + threadIdx.y;
    if (column >= packs) return;
    Pack<T, kSize> kept[kRows];
    // Behind the last row it is loaded again: a load under a condition would let the compiler use the others first.
#pragma unroll
    for (int r = 0; r < kRows; r++) {
        kept[r] = x[min(first + r * blockDim.y, rows - 1) * packs + column];
    }
    const Pack<T, kSize> shift = bias[column];
#pragma unroll
    for (int r = 0; r < kRows; r++) {
        const int64_t row = first + r * blockDim.y;
        if (row >= rows) continue;
        Pack<T, kSize> result;
#pragma unroll
        for (int j = 0; j < kSize; j++) {
            result.at[j] = gelu<T, kTanh>(static_cast<float>(kept[r].at[j]) + static_cast<float>(shift.at[j]));
        }
        y[row * packs + column] = result;
    }
}

template <typename T, int kSize, bool kTanh>
void launch(const torch::Tensor& x, const torch::Tensor& bias, torch::Tensor& y) {
    const int64_t packs = bias.numel() / kSize, rows = x.numel() / bias.numel();
    int columns = 1;  // threads along a row: a power of two, all of them for rows that are wide enough
    while (columns < kThreads && columns < packs) columns *= 2;
    const dim3 block(columns, kThreads / columns);
    const int64_t column_blocks = (packs + columns - 1) / columns;
    const int64_t blocks = column_blocks * ((rows + block.y * kRows - 1) / (block.y * kRows));
    TORCH_CHECK(blocks <= INT_MAX, "bias_gelu: ", x.sizes(), " needs more blocks than a grid can have");
    const auto pointer = [](const torch::Tensor& t) { return reinterpret_cast<Pack<T, kSize>*>(t.data_ptr()); };
    bias_gelu_kernel<T, kSize, kTanh>
        <<<static_cast<unsigned>(blocks), block, 0, c10::cuda::getCurrentCUDAStream()>>>(
            pointer(x), pointer(bias), pointer(y), rows, packs, static_cast<int>(column_blocks));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

template <typename T>
void choose(const torch::Tensor& x, const torch::Tensor& bias, torch::Tensor& y, bool tanh_form) {
    constexpr int kSize = sizeof(uint4) / sizeof(T);
    const auto address = [](const torch::Tensor& t) { return reinterpret_cast<uintptr_t>(t.data_ptr()); };
    if (bias.numel() % kSize == 0 && (address(x) | address(bias) | address(y)) % sizeof(uint4) == 0) {
        tanh_form ? launch<T, kSize, true>(x, bias, y) : launch<T, kSize, false>(x, bias, y);
    } else {
        tanh_form ? launch<T, 1, true>(x, bias, y) : launch<T, 1, false>(x, bias, y);
    }
}

torch::Tensor bias_gelu(torch::Tensor x, torch::Tensor bias, bool tanh_form) {
    TORCH_CHECK(x.is_cuda(), "bias_gelu: x must be a CUDA tensor, got one on ", x.device());
    TORCH_CHECK(bias.device() == x.device() && bias.scalar_type() == x.scalar_type(), "bias_gelu: bias is ",
                bias.scalar_type(), " on ", bias.device(), ", but x is ", x.scalar_type(), " on ", x.device());
    TORCH_CHECK(bias.dim() == 1 && x.dim() >= 1 && x.size(-1) == bias.size(0), "bias_gelu: the last dimension of x ",
                x.sizes(), " must be that of bias ", bias.sizes());
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    bias = bias.contiguous();
    auto y = torch::empty(x.sizes(), x.options());
    if (y.numel() == 0) return y;  // a launch of no blocks is an error

    switch (x.scalar_type()) {
        case torch::kFloat: choose<float>(x, bias, y, tanh_form); break;
        case torch::kHalf: choose<c10::Half>(x, bias, y, tanh_form); break;
        case torch::kBFloat16: choose<c10::BFloat16>(x, bias, y, tanh_form); break;
        default: TORCH_CHECK(false, "bias_gelu: x must be float32, float16 or bfloat16, got ", x.scalar_type());
    }
    return y;
}
"""

# Host code is not optimised unless it is asked for.
extension = load_inline(
    name="bias_gelu_vectorised",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["bias_gelu"],
    extra_cflags=["-O2"],
    extra_cuda_cflags=["-O2"],
)


class ModelNew(nn.Module):
    def __init__(self, features, approximate="none"):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))
        self.tanh_form = approximate == "tanh"

    def forward(self, x):
        return extension.bias_gelu(x, self.bias, self.tanh_form)
