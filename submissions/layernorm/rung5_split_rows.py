"""LayerNorm, rung 5: every row is split over many blocks.

The idea: one block per row leaves most of the GPU idle when there are few rows. Here a block takes a chunk
of 8,192 floats of a row, so 16 rows of 4 million make 8,192 blocks. Blocks of one kernel cannot wait for
each other, so there are two: the first writes each chunk's statistics, the second merges those of its row
and writes the chunk's output.

Numerics: a chunk's mean and sum of squared deviations come from registers in two corrected passes. The
merge adds to those sums what the chunks' means differ from the row's mean: without that term, rows whose
level drifts would come out wrong. It runs in double, on a few hundred values per block, so that a row of
mean 10,000 loses nothing to the rounding of its mean.

Bytes moved: x is read twice and y written once, 12 bytes per element, plus weight and bias once if L2
keeps them, and 16 bytes per chunk. On the (16, 64, 256, 256) case: 839 MB, 0.20 ms at 4.26 TB/s.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = "torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);"

CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <algorithm>
#include <climits>

constexpr int kWarp = 32, kMaxThreads = 256;
constexpr int kChunk = 8192, kFloatsPerThread = kChunk / kMaxThreads;  // 32, which fit in registers
constexpr unsigned kAllLanes = 0xffffffffu;

// In a butterfly both partners add each other's value: afterwards every lane holds the sum.
template <typename T>
__device__ T warp_sum(T value) {
    for (int mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(kAllLanes, value, mask);
    return value;
}

// The sum of every thread's value, returned to all of them.
template <typename T>
__device__ T block_sum(T value) {
    __shared__ T sums[kMaxThreads / kWarp];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    value = warp_sum(value);
    __syncthreads();  // the previous sums may still be being read
    if (lane == 0) sums[warp] = value;
    __syncthreads();
    return warp_sum(lane < blockDim.x / kWarp ? sums[lane] : T(0));
}

template <int kFloats>
struct alignas(kFloats * sizeof(float)) Pack {  // one load or store
    float at[kFloats];
};

struct Statistics {
    double mean, squares;  // squares: the sum of squared deviations from that mean
};

// Chunk c of a row: elements first to last - 1 of x.
struct Chunk {
    int64_t row, c, first, last;

    __device__ Chunk(int64_t width, int64_t chunks)
        : row(blockIdx.x / chunks), c(blockIdx.x % chunks) {
        first = row * width + c * kChunk;
        last = row * width + min((c + 1) * kChunk, width);
    }
};

template <int kFloats>
__global__ void __launch_bounds__(kMaxThreads)
statistics_kernel(const float* x, Statistics* statistics, int64_t width, int64_t chunks) {
    const Chunk chunk(width, chunks);
    const int count = chunk.last - chunk.first;
    const auto* packs = reinterpret_cast<const Pack<kFloats>*>(x + chunk.first);
    constexpr int kPacks = kFloatsPerThread / kFloats;
    Pack<kFloats> kept[kPacks] = {};

    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kPacks; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i * kFloats < count) kept[k] = packs[i];
        for (int j = 0; j < kFloats; j++) sum += kept[k].at[j];
    }
    const float mean = block_sum(sum) / count;

    float deviations = 0.0f, squares = 0.0f;
#pragma unroll
    for (int k = 0; k < kPacks; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        for (int j = 0; j < kFloats; j++) {
            const float d = i * kFloats < count ? kept[k].at[j] - mean : 0.0f;
            deviations += d;
            squares += d * d;
        }
    }
    deviations = block_sum(deviations);  // not zero: what the rounded mean missed
    squares = block_sum(squares);
    if (threadIdx.x == 0) {
        const double correction = static_cast<double>(deviations) / count;
        statistics[blockIdx.x] = {mean + correction, squares - deviations * correction};
    }
}

template <int kFloats>
__global__ void __launch_bounds__(kMaxThreads)
normalise_kernel(const float* x, const float* weight, const float* bias, float* y,
                 const Statistics* statistics, int64_t width, int64_t chunks, float eps) {
    const Chunk chunk(width, chunks);
    statistics += chunk.row * chunks;

    const auto count = [&](int64_t c) -> double { return min(width - c * kChunk, int64_t(kChunk)); };
    double sum = 0.0, squares = 0.0;
    for (int64_t c = threadIdx.x; c < chunks; c += blockDim.x) sum += count(c) * statistics[c].mean;
    const double mean = block_sum(sum) / width;
    for (int64_t c = threadIdx.x; c < chunks; c += blockDim.x) {
        const double between = statistics[c].mean - mean;
        squares += statistics[c].squares + count(c) * between * between;
    }
    const float rstd = rsqrtf(static_cast<float>(fmax(block_sum(squares) / width, 0.0)) + eps);
    const float high = mean, low = mean - high;  // together the double

    const auto* in = reinterpret_cast<const Pack<kFloats>*>(x + chunk.first);
    const auto* w = reinterpret_cast<const Pack<kFloats>*>(weight + chunk.c * kChunk);
    const auto* b = reinterpret_cast<const Pack<kFloats>*>(bias + chunk.c * kChunk);
    auto* out = reinterpret_cast<Pack<kFloats>*>(y + chunk.first);
    const int packs = (chunk.last - chunk.first) / kFloats;
#pragma unroll 4
    for (int i = threadIdx.x; i < packs; i += blockDim.x) {
        const Pack<kFloats> values = in[i], scale = w[i], shift = b[i];
        Pack<kFloats> result;
        for (int j = 0; j < kFloats; j++) {
            result.at[j] = ((values.at[j] - high) - low) * rstd * scale.at[j] + shift.at[j];
        }
        out[i] = result;
    }
}

void check_parameter(const char* name, const torch::Tensor& parameter, const torch::Tensor& x) {
    TORCH_CHECK(parameter.device() == x.device(), "layer_norm: ", name, " is on ", parameter.device(),
                " but x is on ", x.device());
    TORCH_CHECK(parameter.scalar_type() == torch::kFloat, "layer_norm: ", name,
                " must be float32, got ", parameter.scalar_type());
}

void check_arguments(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
    TORCH_CHECK(x.is_cuda(), "layer_norm: x must be a CUDA tensor, got one on ", x.device());
    TORCH_CHECK(x.scalar_type() == torch::kFloat, "layer_norm: x must be float32, got ", x.scalar_type());
    check_parameter("weight", weight, x);
    check_parameter("bias", bias, x);
    TORCH_CHECK(weight.dim() >= 1 && x.dim() >= weight.dim() &&
                    x.sizes().slice(x.dim() - weight.dim()) == weight.sizes(),
                "layer_norm: the last dimensions of x ", x.sizes(), " must be normalized_shape ",
                weight.sizes());
    TORCH_CHECK(bias.sizes() == weight.sizes(), "layer_norm: bias has shape ", bias.sizes(),
                " but weight has shape ", weight.sizes());
}

template <int kFloats>
void launch(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, torch::Tensor& y,
            float eps) {
    const int64_t width = weight.numel(), chunks = (width + kChunk - 1) / kChunk;
    const int64_t blocks = x.numel() / width * chunks;
    TORCH_CHECK(blocks <= INT_MAX, "layer_norm: ", blocks, " chunks, but a grid has at most ", INT_MAX,
                " blocks");
    const int64_t floats = std::min<int64_t>(width, kChunk), per_warp = kWarp * kFloatsPerThread;
    const unsigned threads = (floats + per_warp - 1) / per_warp * kWarp;  // fewer for a row below a chunk
    const auto scratch = torch::empty({blocks, 2}, x.options().dtype(torch::kDouble));
    auto* statistics = reinterpret_cast<Statistics*>(scratch.data_ptr<double>());
    const auto stream = c10::cuda::getCurrentCUDAStream();

    statistics_kernel<kFloats><<<static_cast<unsigned>(blocks), threads, 0, stream>>>(
        x.data_ptr<float>(), statistics, width, chunks);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    normalise_kernel<kFloats><<<static_cast<unsigned>(blocks), threads, 0, stream>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(),
        statistics, width, chunks, eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

bool aligned(const torch::Tensor& t) {
    return reinterpret_cast<uintptr_t>(t.data_ptr()) % sizeof(Pack<4>) == 0;
}

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
    check_arguments(x, weight, bias);
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    weight = weight.contiguous();
    bias = bias.contiguous();
    auto y = torch::empty(x.sizes(), x.options());
    if (y.numel() == 0) return y;  // a launch of no blocks is an error

    if (weight.numel() % 4 == 0 && aligned(x) && aligned(weight) && aligned(bias)) {
        launch<4>(x, weight, bias, y, eps);
    } else {
        launch<1>(x, weight, bias, y, eps);
    }
    return y;
}
"""

extension = load_inline(name="layernorm_rung5", cpp_sources=CPP, cuda_sources=CUDA, functions=["layer_norm"])


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return extension.layer_norm(x, self.weight, self.bias, self.eps)
