"""Residual add and LayerNorm, each element read once where a row fits a block's registers.

The idea: x and residual are loaded 16 bytes at a time into the registers of a warp or a block, added, and
their sum is written at once, so that stores flow while the row is reduced. The sum stays in registers and the
norm comes out of those: four touches of memory where three separate kernels make seven. Mean and variance take
one reduction: threads have the moments of what they hold, and merge them two by two. Longer rows are split over
blocks: one kernel adds, writes the sum and takes the moments of chunks, the next merges those of its row and
reads the sum back, from the last chunk to the first, because the end of it is what L2 still holds. Widths and
addresses that 16-byte packs do not fit go element by element through the same code.

Numerics: the sum is rounded to the dtype of x before it is normalised, as PyTorch rounds it, so that both
results speak of the same values. Statistics are fp32, of differences from the median of three of a row's elements,
merged by the formula of Chan, Golub and LeVeque (1983): neither a large mean nor an outlier costs digits.

Bytes moved: x, residual, sum and y once for rows in registers; the sum twice for split rows, as far as L2 does
not serve it.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """
std::tuple<torch::Tensor, torch::Tensor> add_layer_norm(torch::Tensor x, torch::Tensor residual,
                                                        torch::Tensor weight, torch::Tensor bias, double eps);
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

template <typename T>
__device__ T added(T a, T b) {
    return static_cast<T>(static_cast<float>(a) + static_cast<float>(b));
}

// What a thread holds of a row: kLoads packs, kThreads apart, as far as the row (or chunk) reaches.
template <typename T, int kSize, int kThreads, int kLoads>
struct Held {
    using P = Pack<T, kSize>;
    P kept[kLoads];
    int count;  // packs that exist

    // Of one input, for the last time.
    __device__ Held(const P* in, int64_t packs) : count(packs_of_thread(packs)) {
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
            if (k < count) kept[k] = load_once(in + threadIdx.x + k * kThreads);
        }
    }

    // Of the sum of two, which is written to `total`, past the caches unless it will be read again.
    __device__ Held(const P* x, const P* residual, P* total, int64_t packs, bool read_again)
        : Held(x, packs) {
        P other[kLoads];
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
            if (k < count) other[k] = load_once(residual + threadIdx.x + k * kThreads);
        }
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
            if (k >= count) continue;
#pragma unroll
            for (int j = 0; j < kSize; j++) kept[k].at[j] = added(kept[k].at[j], other[k].at[j]);
            P* p = total + threadIdx.x + k * kThreads;
            if (read_again) {
                *p = kept[k];
            } else {
                store_once(p, kept[k]);
            }
        }
    }

    __device__ static int packs_of_thread(int64_t packs) {
        return threadIdx.x < packs ? min((packs - threadIdx.x + kThreads - 1) / kThreads, int64_t(kLoads)) : 0;
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

    __device__ void write(P* out, const P* weight, const P* bias, float pivot, float mean, float rstd) const {
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
            if (k >= count) continue;
            const int i = threadIdx.x + k * kThreads;
            const P scale = weight[i], shift = bias[i];
            P result;
#pragma unroll
            for (int j = 0; j < kSize; j++) {
                const float normalised = ((static_cast<float>(kept[k].at[j]) - pivot) - mean) * rstd;
                result.at[j] = static_cast<T>(
                    fmaf(normalised, static_cast<float>(scale.at[j]), static_cast<float>(shift.at[j])));
            }
            store_once(out + i, result);
        }
    }
};

template <typename T, int kSize>
struct Tensors {
    const Pack<T, kSize>*x, *residual, *weight, *bias;
    Pack<T, kSize>*y, *total;
};

// ------------------------------------------------------------------------------------------------------
// A row in the registers of kThreads threads: of a block, or of a warp, of which a block then has two.

constexpr int kThreadsOfMultiprocessor = 1024;  // leaves each thread 64 registers

constexpr int block_of(int threads) { return threads == kWarp ? 2 * kWarp : threads; }

// A row's pivot, from its parts or from their sum.
template <typename T, int kSize>
__device__ float pivot_of(const Tensors<T, kSize>& t, int64_t first, int64_t packs) {
    const int64_t middle = first + packs / 2, last = first + packs - 1;
    return median(added(t.x[first].at[0], t.residual[first].at[0]), added(t.x[middle].at[0], t.residual[middle].at[0]),
                  added(t.x[last].at[kSize - 1], t.residual[last].at[kSize - 1]));
}

template <typename T, int kSize>
__device__ float pivot_of(const Pack<T, kSize>* total, int64_t packs) {
    return median(total[0].at[0], total[packs / 2].at[0], total[packs - 1].at[kSize - 1]);
}

template <typename T, int kSize, int kThreads, int kLoads>
__global__ void __launch_bounds__(block_of(kThreads), kThreadsOfMultiprocessor / block_of(kThreads))
whole_rows(Tensors<T, kSize> t, int64_t rows, int packs, float eps) {
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    if (row >= rows) return;  // a whole warp, and only where warps do not wait for each other
    const int64_t first = row * packs;
    const float pivot = pivot_of(t, first, packs);
    const Held<T, kSize, kThreads, kLoads> held(t.x + first, t.residual + first, t.total + first, packs, false);
    const Moments m = merged_over_row<kThreads>(held.moments(pivot));
    const float rstd = rsqrtf(m.squares / (float(packs) * kSize) + eps);
    held.write(t.y + first, t.weight, t.bias, pivot, m.mean, rstd);
}

// ------------------------------------------------------------------------------------------------------
// A row in chunks, a block for each. Blocks cannot wait for each other: a second kernel does instead.

constexpr int kSplitThreads = 256, kSplitLoads = 4;  // of two inputs
constexpr int64_t kChunk = kSplitThreads * kSplitLoads;  // packs

template <typename T, int kSize>
__global__ void __launch_bounds__(kSplitThreads, 4)
add_chunks(Tensors<T, kSize> t, float2* of_chunks, int64_t packs, int chunks) {
    const int64_t row = blockIdx.x / chunks, first = blockIdx.x % chunks * kChunk, at = row * packs + first;
    const float pivot = pivot_of(t, row * packs, packs);
    const Held<T, kSize, kSplitThreads, kSplitLoads> held(t.x + at, t.residual + at, t.total + at, packs - first, true);
    const Moments m = merged_over_row<kSplitThreads>(held.moments(pivot));
    if (threadIdx.x == 0) of_chunks[blockIdx.x] = make_float2(m.mean, m.squares);
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kSplitThreads, 4)
write_chunks(Tensors<T, kSize> t, const float2* of_chunks, int64_t packs, int chunks, float eps) {
    const unsigned block = gridDim.x - 1 - blockIdx.x;  // from the end, which L2 still has
    const int64_t row = block / chunks, first = block % chunks * kChunk, at = row * packs + first;
    const Held<T, kSize, kSplitThreads, kSplitLoads> held(t.total + at, packs - first);
    Moments m = {};
    for (int c = threadIdx.x; c < chunks; c += kSplitThreads) {
        const float2 chunk = of_chunks[row * chunks + c];
        m = merged(m, {float(min(kChunk, packs - c * kChunk)) * kSize, chunk.x, chunk.y});
    }
    m = merged_over_row<kSplitThreads>(m);
    const float pivot = pivot_of(t.total + row * packs, packs), rstd = rsqrtf(m.squares / (float(packs) * kSize) + eps);
    held.write(t.y + at, t.weight + first, t.bias + first, pivot, m.mean, rstd);
}

// ------------------------------------------------------------------------------------------------------
// From shape to kernel.

struct Call {
    const torch::Tensor &x, &residual, &weight, &bias, &y, &total;
    int64_t rows, width;
    float eps;
    cudaStream_t stream;

    template <typename T, int kSize>
    Tensors<T, kSize> tensors() const {
        const auto pointer = [](const torch::Tensor& t) { return static_cast<Pack<T, kSize>*>(t.data_ptr()); };
        return {pointer(x), pointer(residual), pointer(weight), pointer(bias), pointer(y), pointer(total)};
    }
};

template <typename T, int kSize, int kThreads, int kLoads>
void whole(const Call& call) {
    const int rows_of_block = block_of(kThreads) / kThreads;
    const int64_t blocks = (call.rows + rows_of_block - 1) / rows_of_block;
    TORCH_CHECK(blocks <= INT_MAX, "add_layer_norm: ", call.rows, " rows are more than a grid can have");
    whole_rows<T, kSize, kThreads, kLoads>
        <<<static_cast<unsigned>(blocks), dim3(kThreads, rows_of_block), 0, call.stream>>>(
            call.template tensors<T, kSize>(), call.rows, static_cast<int>(call.width / kSize), call.eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

template <typename T, int kSize>
void split(const Call& call) {
    const int64_t packs = call.width / kSize, chunks = (packs + kChunk - 1) / kChunk, blocks = call.rows * chunks;
    TORCH_CHECK(blocks <= INT_MAX, "add_layer_norm: ", blocks, " chunks are more than a grid can have");
    const auto scratch = torch::empty({blocks, 2}, call.x.options().dtype(torch::kFloat));
    auto* of_chunks = reinterpret_cast<float2*>(scratch.template data_ptr<float>());
    const auto tensors = call.template tensors<T, kSize>();
    add_chunks<T, kSize><<<static_cast<unsigned>(blocks), kSplitThreads, 0, call.stream>>>(
        tensors, of_chunks, packs, static_cast<int>(chunks));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    write_chunks<T, kSize><<<static_cast<unsigned>(blocks), kSplitThreads, 0, call.stream>>>(
        tensors, of_chunks, packs, static_cast<int>(chunks), call.eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// The one place that chooses: element size of a load, threads of a row, and packs that each of them holds.
template <typename T>
void choose(const Call& call) {
    constexpr int kSize = sizeof(uint4) / sizeof(T);
    uintptr_t bits = 0;
    for (const auto* tensor : {&call.x, &call.residual, &call.weight, &call.bias, &call.y, &call.total}) {
        bits |= reinterpret_cast<uintptr_t>(tensor->data_ptr());
    }
    if (bits % sizeof(uint4) || call.width % kSize) {
        if (call.width <= 128) return whole<T, 1, kWarp, 4>(call);
        if (call.width <= 2048) return whole<T, 1, 256, 8>(call);
        return split<T, 1>(call);
    }
    const int64_t packs = call.width / kSize;
    if (packs <= 128) return whole<T, kSize, kWarp, 4>(call);
    if (packs <= 256) return whole<T, kSize, 128, 2>(call);
    if (packs <= 512) return whole<T, kSize, 128, 4>(call);
    if (packs <= 1024) return whole<T, kSize, 256, 4>(call);
    if (packs <= 2048) return whole<T, kSize, 512, 4>(call);
    if (packs <= 4096) return whole<T, kSize, 1024, 4>(call);
    split<T, kSize>(call);
}

void check_parameter(const char* name, const torch::Tensor& parameter, const torch::Tensor& x) {
    TORCH_CHECK(parameter.device() == x.device() && parameter.scalar_type() == x.scalar_type(), "add_layer_norm: ",
                name, " is ", parameter.scalar_type(), " on ", parameter.device(), ", but x is ", x.scalar_type(),
                " on ", x.device());
}

void check_arguments(const torch::Tensor& x, const torch::Tensor& residual, const torch::Tensor& weight,
                     const torch::Tensor& bias) {
    TORCH_CHECK(x.is_cuda(), "add_layer_norm: x must be a CUDA tensor, got one on ", x.device());
    check_parameter("residual", residual, x);
    check_parameter("weight", weight, x);
    check_parameter("bias", bias, x);
    TORCH_CHECK(residual.sizes() == x.sizes(), "add_layer_norm: residual has shape ", residual.sizes(),
                " but x has shape ", x.sizes());
    TORCH_CHECK(weight.dim() >= 1 && x.dim() >= weight.dim() &&
                    x.sizes().slice(x.dim() - weight.dim()) == weight.sizes(),
                "add_layer_norm: the last dimensions of x ", x.sizes(), " must be normalized_shape ", weight.sizes());
    TORCH_CHECK(bias.sizes() == weight.sizes(), "add_layer_norm: bias has shape ", bias.sizes(),
                " but weight has shape ", weight.sizes());
}

std::tuple<torch::Tensor, torch::Tensor> add_layer_norm(torch::Tensor x, torch::Tensor residual,
                                                        torch::Tensor weight, torch::Tensor bias, double eps) {
    check_arguments(x, residual, weight, bias);
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    residual = residual.contiguous();
    weight = weight.contiguous();
    bias = bias.contiguous();
    auto y = torch::empty(x.sizes(), x.options()), total = torch::empty_like(y);
    if (y.numel() == 0) return {y, total};  // a launch of no blocks is an error

    const int64_t width = weight.numel();
    const Call call = {x,     residual,          weight, bias,
                       y,     total,             x.numel() / width,
                       width, static_cast<float>(eps), c10::cuda::getCurrentCUDAStream()};
    switch (x.scalar_type()) {
        case torch::kFloat: choose<float>(call); break;
        case torch::kHalf: choose<c10::Half>(call); break;
        case torch::kBFloat16: choose<c10::BFloat16>(call); break;
        default: TORCH_CHECK(false, "add_layer_norm: x must be float32, float16 or bfloat16, got ", x.scalar_type());
    }
    return {y, total};
}
"""

extension = load_inline(
    name="add_layernorm_read_once", cpp_sources=CPP, cuda_sources=CUDA, functions=["add_layer_norm"]
)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x, residual):
        return extension.add_layer_norm(x, residual, self.weight, self.bias, self.eps)
