"""LayerNorm's forward for a training step: y, and for each row its mean and 1 / sqrt(variance + eps). fp32.

Rows up to 16,384 elements live in the registers of a block: x is read once, y is written once, and all loads of a
thread are on their way before the first is used.

Longer rows are read twice: one kernel takes statistics of chunks, one joins those of a row and writes them down, one
computes the output of a chunk of columns for all rows, so that weight and bias are read once. The output goes
backwards and begins with what the statistics read last, which L2 still holds.

Rows that are no whole 16-byte vectors, and memory that is not aligned to them, go element by element.

Numerics: a mean, then deviations from it, their squares, and their own mean: what rounding took from the first. Chunks
are joined in fp64 by the formula of Chan, Golub and LeVeque (1983).

Bytes moved: short rows x and y once, 8192x4096 268 MB. The (16, 64, 256, 256) case x twice but for what L2 holds, y,
weight and bias once: at most 839 MB.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = "std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);"

CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <algorithm>
#include <climits>
#include <cstdint>

constexpr int kWarp = 32;

// ------------------------------------------------------------------------------------------------------
// Sums, and the statistics of a row.

__device__ __forceinline__ float2 operator+(const float2& a, const float2& b) {
    return make_float2(a.x + b.x, a.y + b.y);
}
__device__ __forceinline__ float across(float v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
__device__ __forceinline__ double across(double v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
__device__ __forceinline__ float2 across(const float2& v, int mask) {
    return make_float2(across(v.x, mask), across(v.y, mask));
}

// The sum over the threads of a block, at most kThreads, for all of them. `of_warps` is shared memory that no sum
// before this one has used, so one barrier is enough.
template <int kThreads, typename V>
__device__ __forceinline__ V block_sum(V v, V* of_warps) {
    constexpr int kWarps = kThreads / kWarp;
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2) v = v + across(v, mask);
    const int lane = threadIdx.x % kWarp, warp = lane % kWarps;
    if (lane == 0) of_warps[threadIdx.x / kWarp] = v;
    __syncthreads();
    v = warp < blockDim.x / kWarp ? of_warps[warp] : V{};
#pragma unroll
    for (int mask = kWarps / 2; mask > 0; mask /= 2) v = v + across(v, mask);
    return v;
}

__device__ __forceinline__ float sum_of(const float4& v) { return (v.x + v.y) + (v.z + v.w); }

// -> deviations from `mean`, and their squares
__device__ __forceinline__ float2 deviations_of(const float4& v, float mean) {
    const float x = v.x - mean, y = v.y - mean, z = v.z - mean, w = v.w - mean;
    return make_float2((x + y) + (z + w), (x * x + y * y) + (z * z + w * w));
}

struct Statistics {
    float mean, correction, inv_std;  // the mean is the sum of the first two
};

// `sums`: deviations from `mean`, and their squares, of `count` values.
__device__ __forceinline__ Statistics statistics_of(float mean, const float2& sums, float count, float eps) {
    const float correction = sums.x / count;
    return {mean, correction, 1.0f / sqrtf(fmaxf(sums.y / count - correction * correction, 0.0f) + eps)};
}

__device__ __forceinline__ float normalised(float x, float weight, float bias, const Statistics& row) {
    return fmaf(((x - row.mean) - row.correction) * row.inv_std, weight, bias);
}

__device__ __forceinline__ float4 normalised(const float4& x, const float4& weight, const float4& bias,
                                             const Statistics& row) {
    return make_float4(normalised(x.x, weight.x, bias.x, row), normalised(x.y, weight.y, bias.y, row),
                       normalised(x.z, weight.z, bias.z, row), normalised(x.w, weight.w, bias.w, row));
}

struct Outputs {
    float *y, *mean, *inv_std;
};

__device__ __forceinline__ void write_down(const Statistics& of, const Outputs& outputs, int64_t row) {
    outputs.mean[row] = of.mean + of.correction;
    outputs.inv_std[row] = of.inv_std;
}

// ------------------------------------------------------------------------------------------------------
// A block has a row in registers: kLoads vectors in each thread.

template <int kThreads, int kBlocks, int kLoads>
__global__ void __launch_bounds__(kThreads, kBlocks)
row_in_registers(const float4* x, const float4* weight, const float4* bias, Outputs outputs, int vectors, float eps) {
    const int64_t row = blockIdx.x;
    const int stride = blockDim.x, left = vectors - 1 - int(threadIdx.x);
    // Only the last vector of a thread may lie behind the row: so few threads are launched (`fills`). It loads the
    // row's last one then. A load under a condition would let the compiler use the others first.
    const auto here = [&](int k) { return k < kLoads - 1 || k * stride <= left; };
    const auto at = [&](int k) { return int(threadIdx.x) + (k < kLoads - 1 ? k * stride : min(k * stride, left)); };
    float4 kept[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; k++) kept[k] = x[row * vectors + at(k)];

    __shared__ float of_warps[kThreads / kWarp];
    __shared__ float2 deviations_of_warps[kThreads / kWarp];
    const float width = 4.0f * vectors;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kLoads; k++) sum += here(k) ? sum_of(kept[k]) : 0.0f;
    const float mean = block_sum<kThreads>(sum, of_warps) / width;
    float2 sums = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int k = 0; k < kLoads; k++) sums = sums + (here(k) ? deviations_of(kept[k], mean) : make_float2(0.0f, 0.0f));
    const Statistics statistics = statistics_of(mean, block_sum<kThreads>(sums, deviations_of_warps), width, eps);

    float4* y = reinterpret_cast<float4*>(outputs.y) + row * vectors + threadIdx.x;
#pragma unroll
    for (int k = 0; k < kLoads; k++) {
        const float4 scale = weight[at(k)], shift = bias[at(k)];
        if (here(k)) y[k * stride] = normalised(kept[k], scale, shift, statistics);
    }
    if (threadIdx.x == 0) write_down(statistics, outputs, row);
}

// ------------------------------------------------------------------------------------------------------
// A long row: statistics of chunks, statistics of rows, output. Three launches, since each needs all of the one before.

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kStatisticsLoads = 8, kStatisticsChunk = kThreads * kStatisticsLoads;  // in vectors
constexpr int kOutputLoads = 2, kOutputChunk = kThreads * kOutputLoads;
constexpr int kOutputBlocks = 3;  // to share a multiprocessor
constexpr int kOutputRows = 4;    // of which a thread has vectors on their way at the same time

// Statistics and output go by strips: as many columns as the output's blocks that are resident together can hold. In a
// strip they go by rows, in a row by chunks. The output goes backwards, and so begins with what L2 holds.
struct Order {
    unsigned rows, chunks, strip;  // of a strip: rows (or groups of rows); of a row, and of a strip: chunks

    __device__ __forceinline__ uint2 row_and_chunk(unsigned block) const {
        const unsigned before = block / (rows * strip) * strip, width = min(strip, chunks - before);
        const unsigned within = block - before * rows;
        return make_uint2(within / width, before + within % width);
    }
};

// A chunk -> its mean, what rounding took from that, and the squares of deviations from both.
__global__ void __launch_bounds__(kThreads)
chunk_statistics(const float4* x, float4* of_chunks, int64_t vectors, Order order) {
    const uint2 place = order.row_and_chunk(blockIdx.x);
    const int64_t first = int64_t(place.y) * kStatisticsChunk;
    const int here = static_cast<int>(min(vectors - first, int64_t(kStatisticsChunk)));
    const float4* in = x + place.x * vectors + first;
    float4 kept[kStatisticsLoads];
#pragma unroll
    for (int k = 0; k < kStatisticsLoads; k++) {
        const int i = threadIdx.x + k * kThreads;
        if (i < here) kept[k] = in[i];
    }
    __shared__ float of_warps[kWarps];
    __shared__ float2 deviations_of_warps[kWarps];
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kStatisticsLoads; k++) {
        if (threadIdx.x + k * kThreads < here) sum += sum_of(kept[k]);
    }
    const float count = 4.0f * here, mean = block_sum<kThreads>(sum, of_warps) / count;
    float2 sums = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int k = 0; k < kStatisticsLoads; k++) {
        if (threadIdx.x + k * kThreads < here) sums = sums + deviations_of(kept[k], mean);
    }
    sums = block_sum<kThreads>(sums, deviations_of_warps);
    const float correction = sums.x / count;
    if (threadIdx.x == 0) {
        of_chunks[int64_t(place.x) * order.chunks + place.y] =
            make_float4(mean, correction, fmaxf(sums.y - sums.x * correction, 0.0f), 0.0f);
    }
}

// All chunks of a row -> its statistics, for the output and for who called.
__global__ void __launch_bounds__(kThreads)
row_statistics(const float4* of_chunks, Statistics* of_rows, Outputs outputs, int64_t vectors, int chunks, double eps) {
    const int64_t row = blockIdx.x;
    of_chunks += row * chunks;
    const auto count_of = [&](int c) {
        return 4.0 * double(min(int64_t(kStatisticsChunk), vectors - int64_t(c) * kStatisticsChunk));
    };
    __shared__ double sums_of_warps[kWarps], squares_of_warps[kWarps];
    const double width = 4.0 * double(vectors);
    double sum = 0.0, squares = 0.0;
    for (int c = threadIdx.x; c < chunks; c += kThreads) {
        sum += count_of(c) * (double(of_chunks[c].x) + of_chunks[c].y);
    }
    const double mean = block_sum<kThreads>(sum, sums_of_warps) / width;
    for (int c = threadIdx.x; c < chunks; c += kThreads) {
        const double delta = double(of_chunks[c].x) - mean + of_chunks[c].y;
        squares += of_chunks[c].z + count_of(c) * delta * delta;
    }
    const double variance = block_sum<kThreads>(squares, squares_of_warps) / width;
    if (threadIdx.x == 0) {
        const float rounded = static_cast<float>(mean);
        const Statistics statistics = {rounded, static_cast<float>(mean - rounded),
                                       static_cast<float>(1.0 / sqrt(variance + eps))};
        of_rows[row] = statistics;
        write_down(statistics, outputs, row);
    }
}

// A chunk of columns for a group of rows, from the last row of the last group back.
__global__ void __launch_bounds__(kThreads, kOutputBlocks)
chunk_output(const float4* x, const float4* weight, const float4* bias, float4* y, const Statistics* of_rows, int rows,
             int64_t vectors, int rows_per_block, Order order) {
    const uint2 place = order.row_and_chunk(gridDim.x - 1 - blockIdx.x);
    const int first_row = place.x * rows_per_block, last_row = min(first_row + rows_per_block, rows) - 1;
    const int64_t column = int64_t(place.y) * kOutputChunk + threadIdx.x;
    float4 scale[kOutputLoads], shift[kOutputLoads];
    const auto here = [&](int k) { return column + k * kThreads < vectors; };
#pragma unroll
    for (int k = 0; k < kOutputLoads; k++) {
        if (here(k)) {
            scale[k] = weight[column + k * kThreads];
            shift[k] = bias[column + k * kThreads];
        }
    }
    for (int row = last_row; row >= first_row; row -= kOutputRows) {
        const int64_t at = row * vectors + column;
        float4 kept[kOutputRows][kOutputLoads];
#pragma unroll
        for (int r = 0; r < kOutputRows; r++) {
#pragma unroll
            for (int k = 0; k < kOutputLoads; k++) {
                // In passing, so that L2 keeps the x that is still to come.
                if (row - r >= first_row && here(k)) kept[r][k] = __ldcs(x + at - r * vectors + k * kThreads);
            }
        }
#pragma unroll
        for (int r = 0; r < kOutputRows; r++) {
            if (row - r < first_row) break;
            const Statistics statistics = of_rows[row - r];
#pragma unroll
            for (int k = 0; k < kOutputLoads; k++) {
                if (here(k)) {
                    __stcs(y + at - r * vectors + k * kThreads, normalised(kept[r][k], scale[k], shift[k], statistics));
                }
            }
        }
    }
}

// ------------------------------------------------------------------------------------------------------
// Any width, any alignment: a block reads its row for each pass.

__global__ void __launch_bounds__(kThreads)
row_by_elements(const float* x, const float* weight, const float* bias, Outputs outputs, int64_t width, float eps) {
    const int64_t row = blockIdx.x;
    x += row * width;
    float* y = outputs.y + row * width;
    __shared__ float of_warps[kWarps];
    __shared__ float2 deviations_of_warps[kWarps];
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += x[i];
    const float mean = block_sum<kThreads>(sum, of_warps) / width;
    float2 sums = make_float2(0.0f, 0.0f);
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
        const float d = x[i] - mean;
        sums = sums + make_float2(d, d * d);
    }
    const Statistics statistics = statistics_of(mean, block_sum<kThreads>(sums, deviations_of_warps), width, eps);
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) y[i] = normalised(x[i], weight[i], bias[i], statistics);
    if (threadIdx.x == 0) write_down(statistics, outputs, row);
}

// ------------------------------------------------------------------------------------------------------
// From shape to kernel.

struct Call {
    const float *x, *weight, *bias;
    Outputs outputs;
    int64_t rows, width;
    float eps;
    c10::Device device;
    cudaStream_t stream;
};

constexpr int64_t parts(int64_t all, int64_t size) { return (all + size - 1) / size; }

template <int kMost, int kBlocks, int kLoads>
void in_registers(const Call& call) {
    const int64_t vectors = call.width / 4;
    const auto threads = static_cast<unsigned>(parts(vectors, kLoads * kWarp) * kWarp);
    row_in_registers<kMost, kBlocks, kLoads>
        <<<static_cast<unsigned>(call.rows), threads, 0, call.stream>>>(
            reinterpret_cast<const float4*>(call.x), reinterpret_cast<const float4*>(call.weight),
            reinterpret_cast<const float4*>(call.bias), call.outputs, static_cast<int>(vectors), call.eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// Whether all threads of `in_registers` have all of their vectors, but for the last one.
template <int kLoads>
constexpr bool fills(int64_t vectors) {
    return (kLoads - 1) * parts(vectors, kLoads * kWarp) * kWarp <= vectors;
}

void in_chunks(const Call& call) {
    const int64_t vectors = call.width / 4;
    const int64_t chunks = parts(vectors, kStatisticsChunk), output_chunks = parts(vectors, kOutputChunk);
    TORCH_CHECK(call.rows * output_chunks <= INT_MAX, "x has more chunks than a grid can have");
    int multiprocessors = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, call.device.index()));
    const int64_t resident = int64_t(multiprocessors) * kOutputBlocks;
    const int64_t strip = parts(resident * kOutputChunk, kStatisticsChunk);
    const int64_t most_groups = std::min(std::max<int64_t>(resident / output_chunks, 1), call.rows);
    const int64_t rows_per_block = parts(call.rows, most_groups);
    const int64_t groups = parts(call.rows, rows_per_block);
    const auto order = [](int64_t rows, int64_t of_row, int64_t of_strip) {
        return Order{unsigned(rows), unsigned(of_row), unsigned(std::min(of_strip, of_row))};
    };
    const auto floats = torch::device(call.device).dtype(torch::kFloat);
    const auto scratch = torch::empty({4 * call.rows * (chunks + 1)}, floats);
    auto* of_chunks = reinterpret_cast<float4*>(scratch.data_ptr<float>());
    auto* of_rows = reinterpret_cast<Statistics*>(of_chunks + call.rows * chunks);
    const auto* x = reinterpret_cast<const float4*>(call.x);
    chunk_statistics<<<static_cast<unsigned>(call.rows * chunks), kThreads, 0, call.stream>>>(
        x, of_chunks, vectors, order(call.rows, chunks, strip));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    row_statistics<<<static_cast<unsigned>(call.rows), kThreads, 0, call.stream>>>(
        of_chunks, of_rows, call.outputs, vectors, static_cast<int>(chunks), call.eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    chunk_output<<<static_cast<unsigned>(groups * output_chunks), kThreads, 0, call.stream>>>(
        x, reinterpret_cast<const float4*>(call.weight), reinterpret_cast<const float4*>(call.bias),
        reinterpret_cast<float4*>(call.outputs.y), of_rows, static_cast<int>(call.rows), vectors,
        static_cast<int>(rows_per_block), order(groups, output_chunks, strip * kStatisticsChunk / kOutputChunk));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// The arguments of `in_registers`: the most threads of a block, how many such blocks share a multiprocessor's
// registers, and the vectors in a thread's.
void choose(const Call& call, bool aligned) {
    const int64_t vectors = call.width / 4;
    if (!aligned || call.width % 4 != 0) {
        const auto threads = static_cast<unsigned>(std::min<int64_t>(parts(call.width, kWarp) * kWarp, kThreads));
        row_by_elements<<<static_cast<unsigned>(call.rows), threads, 0, call.stream>>>(
            call.x, call.weight, call.bias, call.outputs, call.width, call.eps);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        return;
    }
    if (vectors <= kWarp) return in_registers<kWarp, 32, 1>(call);
    if (vectors <= 256 || !fills<4>(vectors)) return in_registers<256, 6, 2>(call);
    if (vectors <= 1024 || !fills<8>(vectors)) return in_registers<512, 3, 4>(call);
    if (vectors <= 2048) return in_registers<256, 4, 8>(call);
    if (vectors <= 4096) return in_registers<512, 2, 8>(call);
    in_chunks(call);
}

std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.scalar_type() == torch::kFloat32,
                "x must be a contiguous fp32 tensor on a GPU, got ", x.scalar_type(), " on ", x.device());
    TORCH_CHECK(weight.device() == x.device() && bias.device() == x.device() && weight.is_contiguous() &&
                    bias.is_contiguous() && weight.scalar_type() == torch::kFloat32 &&
                    bias.scalar_type() == torch::kFloat32 && weight.sizes() == bias.sizes() &&
                    x.dim() >= weight.dim() && x.sizes().slice(x.dim() - weight.dim()) == weight.sizes(),
                "weight ", weight.sizes(), " and bias ", bias.sizes(),
                " must be contiguous fp32 tensors of the last dimensions of x ", x.sizes(), " beside it");
    const int64_t width = weight.numel(), rows = width ? x.numel() / width : 0;
    TORCH_CHECK(rows <= INT_MAX, rows, " rows are more than a grid can have");
    const auto leading = x.sizes().slice(0, x.dim() - weight.dim());
    auto y = torch::empty_like(x);
    auto mean = torch::empty(leading, x.options()), inv_std = torch::empty(leading, x.options());
    if (rows == 0) return {y, mean, inv_std};  // a launch of no blocks is an error
    const c10::cuda::CUDAGuard guard(x.device());
    const Call call = {x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(),
                       {y.data_ptr<float>(), mean.data_ptr<float>(), inv_std.data_ptr<float>()},
                       rows, width, static_cast<float>(eps), x.device(), c10::cuda::getCurrentCUDAStream()};
    const auto bits = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.weight) |
                      reinterpret_cast<uintptr_t>(call.bias) | reinterpret_cast<uintptr_t>(call.outputs.y);
    choose(call, bits % 16 == 0);
    return {y, mean, inv_std};
}
"""

extension = load_inline(name="layernorm_forward_read_once", cpp_sources=CPP, cuda_sources=CUDA, functions=["forward"])


class ModelNew(nn.Module):
    """nn.LayerNorm that gives (y, mean, inv_std)."""

    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        y, mean, inv_std = extension.forward(x.contiguous(), self.weight, self.bias, self.eps)
        return y, mean, inv_std
