"""LayerNorm with all of its options, each element read once where a row fits a block's registers.

The idea: a row of up to 64 KB lives in the registers of a warp or a block, loaded 16 bytes at a time by as
many small blocks as the multiprocessors hold, so that some load while others reduce. Mean and variance come
out of one reduction: threads have the moments of what they hold, and merge them two by two. Longer rows are
split over blocks, which keeps the whole GPU busy with a single row: one kernel takes the moments of chunks,
the next merges those of its row and writes a chunk, from the last to the first, because the end of x is what
L2 still holds. Widths and addresses that 16-byte packs do not fit go element by element through the same code.

Numerics: sums are fp32, of differences from the median of three of the row's elements, merged by the formula of Chan,
Golub and LeVeque (1983): neither a large mean nor an outlier costs digits.

Bytes moved: x and y once for rows in registers; x twice for split rows, as far as L2 does not serve the second.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """
torch::Tensor layer_norm(torch::Tensor x, int64_t width, std::optional<torch::Tensor> weight,
                         std::optional<torch::Tensor> bias, double eps);
"""

CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <climits>

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

template <typename T, int kSize>
struct alignas(kSize * sizeof(T)) Pack {  // one load or store
    T at[kSize];
};

// Each x is read and each y written when it has no further use: in passing, not to be kept by the caches.
template <typename P>
__device__ P load_once(const P* p) {
    P pack;
    if constexpr (sizeof(P) == sizeof(uint4)) {
        const uint4 bits = __ldcs(reinterpret_cast<const uint4*>(p));
        memcpy(&pack, &bits, sizeof pack);
    } else {
        pack = *p;
    }
    return pack;
}

template <typename P>
__device__ void store_once(P* p, const P& pack) {
    if constexpr (sizeof(P) == sizeof(uint4)) {
        uint4 bits;
        memcpy(&bits, &pack, sizeof bits);
        __stcs(reinterpret_cast<uint4*>(p), bits);
    } else {
        *p = pack;
    }
}

// ------------------------------------------------------------------------------------------------------
// Statistics.

// Differences are taken from a value of the row's bulk: the median of three, of which one may be an outlier.
__device__ float median(float a, float b, float c) { return fmaxf(fminf(a, b), fminf(fmaxf(a, b), c)); }

struct Moments {
    float count, mean, squares;  // the mean less the row's pivot; squares of deviations from the mean
};

// Chan, Golub and LeVeque: what two parts of a row say together.
__device__ Moments merged(const Moments& a, const Moments& b) {
    const float count = a.count + b.count, delta = b.mean - a.mean;
    const float share = count > 0.0f ? __fdividef(b.count, count) : 0.0f;
    return {count, a.mean + delta * share, a.squares + b.squares + delta * delta * a.count * share};
}

__device__ Moments merged_over_warp(Moments m) {
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
        m = merged(m, {__shfl_xor_sync(kAllLanes, m.count, mask), __shfl_xor_sync(kAllLanes, m.mean, mask),
                       __shfl_xor_sync(kAllLanes, m.squares, mask)});
    }
    return m;
}

// What the kThreads threads of a row say together, the same to the last bit for all of them.
template <int kThreads>
__device__ Moments merged_over_row(Moments m) {
    m = merged_over_warp(m);
    if constexpr (kThreads > kWarp) {
        __shared__ Moments of_warps[kThreads / kWarp];
        const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
        if (lane == 0) of_warps[warp] = m;
        __syncthreads();
        m = merged_over_warp(lane < kThreads / kWarp ? of_warps[lane] : Moments{});
    }
    return {m.count, __shfl_sync(kAllLanes, m.mean, 0), __shfl_sync(kAllLanes, m.squares, 0)};
}

// What a thread holds of a row: kLoads packs, kThreads apart, as far as the row (or chunk) reaches.
template <typename T, int kSize, int kThreads, int kLoads>
struct Held {
    using P = Pack<T, kSize>;
    P kept[kLoads];
    int count;  // packs that exist

    __device__ Held(const P* in, int64_t packs, bool last_use) {
        count = threadIdx.x < packs ? min((packs - threadIdx.x + kThreads - 1) / kThreads, int64_t(kLoads)) : 0;
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
            const P* p = in + threadIdx.x + k * kThreads;
            if (k < count) kept[k] = last_use ? load_once(p) : *p;
        }
    }

    __device__ Moments moments(float pivot) const {
        const float number = count * kSize;
        float sum = 0.0f, squares = 0.0f;
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
#pragma unroll
            for (int j = 0; j < kSize; j++) sum += k < count ? static_cast<float>(kept[k].at[j]) - pivot : 0.0f;
        }
        const float mean = count > 0 ? sum / number : 0.0f;
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
#pragma unroll
            for (int j = 0; j < kSize; j++) {
                const float d = k < count ? (static_cast<float>(kept[k].at[j]) - pivot) - mean : 0.0f;
                squares = fmaf(d, d, squares);
            }
        }
        return {number, mean, squares};
    }

    // weight and bias may be null
    __device__ void write(P* out, const P* weight, const P* bias, float pivot, float mean, float rstd) const {
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
            if (k >= count) continue;
            const int i = threadIdx.x + k * kThreads;
            float value[kSize];
#pragma unroll
            for (int j = 0; j < kSize; j++) {
                value[j] = ((static_cast<float>(kept[k].at[j]) - pivot) - mean) * rstd;
            }
            if (weight) {
                const P scale = weight[i];
#pragma unroll
                for (int j = 0; j < kSize; j++) value[j] *= static_cast<float>(scale.at[j]);
            }
            if (bias) {
                const P shift = bias[i];
#pragma unroll
                for (int j = 0; j < kSize; j++) value[j] += static_cast<float>(shift.at[j]);
            }
            P result;
#pragma unroll
            for (int j = 0; j < kSize; j++) result.at[j] = static_cast<T>(value[j]);
            store_once(out + i, result);
        }
    }
};

// ------------------------------------------------------------------------------------------------------
// A row in the registers of kThreads threads: of a block, or of a warp, of which a block then has two.

constexpr int kThreadsOfMultiprocessor = 1024;  // leaves each thread 64 registers

constexpr int block_of(int threads) { return threads == kWarp ? 2 * kWarp : threads; }

template <typename T, int kSize>
__device__ float pivot_of(const Pack<T, kSize>* row, int64_t packs) {
    return median(static_cast<float>(row[0].at[0]), static_cast<float>(row[packs / 2].at[0]),
                  static_cast<float>(row[packs - 1].at[kSize - 1]));
}

template <typename T, int kSize, int kThreads, int kLoads>
__global__ void __launch_bounds__(block_of(kThreads), kThreadsOfMultiprocessor / block_of(kThreads))
whole_rows(const Pack<T, kSize>* x, const Pack<T, kSize>* weight, const Pack<T, kSize>* bias, Pack<T, kSize>* y,
           int64_t rows, int packs, float eps) {
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    if (row >= rows) return;  // a whole warp, and only where warps do not wait for each other
    x += row * packs;
    const Held<T, kSize, kThreads, kLoads> held(x, packs, true);
    const float pivot = pivot_of(x, packs);
    const Moments m = merged_over_row<kThreads>(held.moments(pivot));
    const float rstd = rsqrtf(m.squares / (float(packs) * kSize) + eps);
    held.write(y + row * packs, weight, bias, pivot, m.mean, rstd);
}

// ------------------------------------------------------------------------------------------------------
// A row in chunks, a block for each. Blocks cannot wait for each other: a second kernel does instead.

constexpr int kSplitThreads = 256, kSplitLoads = 8;
constexpr int64_t kChunk = kSplitThreads * kSplitLoads;  // packs

template <typename T, int kSize>
__global__ void __launch_bounds__(kSplitThreads, 3)
chunk_moments(const Pack<T, kSize>* x, float2* of_chunks, int64_t packs, int chunks) {
    x += blockIdx.x / chunks * packs;
    const int64_t first = blockIdx.x % chunks * kChunk;
    const Held<T, kSize, kSplitThreads, kSplitLoads> held(x + first, packs - first, false);
    const Moments m = merged_over_row<kSplitThreads>(held.moments(pivot_of(x, packs)));
    if (threadIdx.x == 0) of_chunks[blockIdx.x] = make_float2(m.mean, m.squares);
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kSplitThreads, 3)
write_chunks(const Pack<T, kSize>* x, const Pack<T, kSize>* weight, const Pack<T, kSize>* bias, Pack<T, kSize>* y,
             const float2* of_chunks, int64_t packs, int chunks, float eps) {
    const unsigned block = gridDim.x - 1 - blockIdx.x;  // from the end, which L2 still has
    const int64_t row = block / chunks, first = block % chunks * kChunk;
    x += row * packs;
    const Held<T, kSize, kSplitThreads, kSplitLoads> held(x + first, packs - first, true);
    Moments m = {};
    for (int c = threadIdx.x; c < chunks; c += kSplitThreads) {
        const float2 chunk = of_chunks[row * chunks + c];
        m = merged(m, {float(min(kChunk, packs - c * kChunk)) * kSize, chunk.x, chunk.y});
    }
    m = merged_over_row<kSplitThreads>(m);
    const float rstd = rsqrtf(m.squares / (float(packs) * kSize) + eps);
    held.write(y + row * packs + first, weight ? weight + first : nullptr, bias ? bias + first : nullptr,
               pivot_of(x, packs), m.mean, rstd);
}

// ------------------------------------------------------------------------------------------------------
// From shape to kernel.

struct Call {
    const void *x, *weight, *bias;
    void* y;
    int64_t rows, width;
    float eps;
    cudaStream_t stream;
};

template <typename T, int kSize, int kThreads, int kLoads>
void whole(const Call& call) {
    using P = Pack<T, kSize>;
    const int rows_of_block = block_of(kThreads) / kThreads;
    const int64_t blocks = (call.rows + rows_of_block - 1) / rows_of_block;
    TORCH_CHECK(blocks <= INT_MAX, "layer_norm: ", call.rows, " rows are more than a grid can have");
    whole_rows<T, kSize, kThreads, kLoads>
        <<<static_cast<unsigned>(blocks), dim3(kThreads, rows_of_block), 0, call.stream>>>(
            static_cast<const P*>(call.x), static_cast<const P*>(call.weight), static_cast<const P*>(call.bias),
            static_cast<P*>(call.y), call.rows, static_cast<int>(call.width / kSize), call.eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

template <typename T, int kSize>
void split(const Call& call, const torch::Tensor& x) {
    using P = Pack<T, kSize>;
    const int64_t packs = call.width / kSize, chunks = (packs + kChunk - 1) / kChunk, blocks = call.rows * chunks;
    TORCH_CHECK(blocks <= INT_MAX, "layer_norm: ", blocks, " chunks are more than a grid can have");
    const auto scratch = torch::empty({blocks, 2}, x.options().dtype(torch::kFloat));
    auto* of_chunks = reinterpret_cast<float2*>(scratch.template data_ptr<float>());
    chunk_moments<T, kSize><<<static_cast<unsigned>(blocks), kSplitThreads, 0, call.stream>>>(
        static_cast<const P*>(call.x), of_chunks, packs, static_cast<int>(chunks));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    write_chunks<T, kSize><<<static_cast<unsigned>(blocks), kSplitThreads, 0, call.stream>>>(
        static_cast<const P*>(call.x), static_cast<const P*>(call.weight), static_cast<const P*>(call.bias),
        static_cast<P*>(call.y), of_chunks, packs, static_cast<int>(chunks), call.eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// The one place that chooses: element size of a load, threads of a row, and packs that each of them holds.
template <typename T>
void choose(const Call& call, const torch::Tensor& x) {
    constexpr int kSize = sizeof(uint4) / sizeof(T);
    const auto bits = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.weight) |
                      reinterpret_cast<uintptr_t>(call.bias) | reinterpret_cast<uintptr_t>(call.y);
    if (bits % sizeof(uint4) || call.width % kSize) {
        if (call.width <= 128) return whole<T, 1, kWarp, 4>(call);
        if (call.width <= 2048) return whole<T, 1, 256, 8>(call);
        return split<T, 1>(call, x);
    }
    const int64_t packs = call.width / kSize;
    if (packs <= 128) return whole<T, kSize, kWarp, 4>(call);
    if (packs <= 256) return whole<T, kSize, 128, 2>(call);
    if (packs <= 512) return whole<T, kSize, 128, 4>(call);
    if (packs <= 1024) return whole<T, kSize, 256, 4>(call);
    if (packs <= 2048) return whole<T, kSize, 512, 4>(call);
    if (packs <= 4096) return whole<T, kSize, 1024, 4>(call);
    split<T, kSize>(call, x);
}

void check_parameter(const char* name, const std::optional<torch::Tensor>& parameter, const torch::Tensor& x,
                     int64_t width) {
    if (!parameter) return;
    TORCH_CHECK(parameter->device() == x.device() && parameter->scalar_type() == x.scalar_type() &&
                    parameter->numel() == width && parameter->is_contiguous(),
                "layer_norm: ", name, " must be contiguous, with ", width, " elements of ", x.scalar_type(), " on ",
                x.device(), "; got ", parameter->sizes(), " of ", parameter->scalar_type(), " on ",
                parameter->device());
}

torch::Tensor layer_norm(torch::Tensor x, int64_t width, std::optional<torch::Tensor> weight,
                         std::optional<torch::Tensor> bias, double eps) {
    TORCH_CHECK(x.is_cuda(), "layer_norm: x must be a CUDA tensor, got one on ", x.device());
    TORCH_CHECK(width > 0 && x.numel() % width == 0, "layer_norm: x has ", x.numel(),
                " elements, which are not rows of ", width);
    check_parameter("weight", weight, x, width);
    check_parameter("bias", bias, x, width);
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    auto y = torch::empty(x.sizes(), x.options());
    if (y.numel() == 0) return y;  // a launch of no blocks is an error

    const auto pointer = [](std::optional<torch::Tensor>& t) { return t ? t->data_ptr() : nullptr; };
    const Call call = {x.data_ptr(),      pointer(weight), pointer(bias),           y.data_ptr(),
                       x.numel() / width, width,           static_cast<float>(eps), c10::cuda::getCurrentCUDAStream()};
    switch (x.scalar_type()) {
        case torch::kFloat: choose<float>(call, x); break;
        case torch::kHalf: choose<c10::Half>(call, x); break;
        case torch::kBFloat16: choose<c10::BFloat16>(call, x); break;
        default: TORCH_CHECK(false, "layer_norm: x must be float32, float16 or bfloat16, got ", x.scalar_type());
    }
    return y;
}
"""

extension = load_inline(
    name="layernorm_options_read_once", cpp_sources=CPP, cuda_sources=CUDA, functions=["layer_norm"]
)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True):
        super().__init__()
        shape = tuple(normalized_shape)
        self.weight = nn.Parameter(torch.ones(shape)) if elementwise_affine else None
        self.bias = nn.Parameter(torch.zeros(shape)) if elementwise_affine and bias else None
        self.width = torch.Size(shape).numel()
        self.eps = eps

    def forward(self, x):
        return extension.layer_norm(x, self.width, self.weight, self.bias, self.eps)
