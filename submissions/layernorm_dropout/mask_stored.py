"""LayerNorm and dropout in one pass, to be read: the forward writes its mask down, the backward reads it.

The idea: a block for each row, and behind the normalisation one more line: an element whose random number is below p
becomes 0, the others are multiplied by 1 / (1 - p). The number comes from a hash of (seed, place of the element), so
threads need no generators of their own that have to be stored and kept apart; the seed is drawn by torch, so that
torch.manual_seed repeats a run. A byte for each element tells the backward what was kept: the gradient of what was
dropped is 0, and from there on it is LayerNorm's backward with dy kept / (1 - p) in the place of dy.

Numerics: fp16 and bf16 are widened when they are read and narrowed when they are written; all sums are fp32, and
fp64 for fp64. The mean is summed as deviations from the row's first element, the variance in a second pass.

Bytes moved, forward: x three times from L2 or memory, y and the mask once. Backward: x, dy and mask three times.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """
std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, double eps, double p,
                                   int64_t seed);
std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor x, torch::Tensor gamma, torch::Tensor mean,
                                    torch::Tensor inv_std, torch::Tensor mask, double p);
"""

CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <climits>
#include <type_traits>

constexpr int kWarp = 32, kThreads = 256;
constexpr int kChunkRows = 64;  // rows whose products one thread adds up
constexpr unsigned kAllLanes = 0xffffffffu;

// What sums are kept in.
template <typename T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ float wide(float v) { return v; }
__device__ double wide(double v) { return v; }
__device__ float wide(__half v) { return __half2float(v); }
__device__ float wide(__nv_bfloat16 v) { return __bfloat162float(v); }

__device__ void narrow(float v, float& to) { to = v; }
__device__ void narrow(double v, double& to) { to = v; }
__device__ void narrow(float v, __half& to) { to = __float2half_rn(v); }
__device__ void narrow(float v, __nv_bfloat16& to) { to = __float2bfloat16_rn(v); }

template <typename A>
__device__ A warp_sum(A value) {
    for (int mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(kAllLanes, value, mask);
    return value;
}

// The sum of every thread's value, returned to all of them.
template <typename A>
__device__ A block_sum(A value) {
    __shared__ A sums[kThreads / kWarp];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    value = warp_sum(value);
    __syncthreads();  // the previous sums may still be being read
    if (lane == 0) sums[warp] = value;
    __syncthreads();
    return warp_sum(lane < kThreads / kWarp ? sums[lane] : A(0));
}

// 64 bits that look random: the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), twice, with the seed
// between, so that neighbouring seeds do not give shifted masks.
__device__ uint64_t mixed(uint64_t z) {
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

// Uniform in [0, 1), with 24 bits, which a float holds exactly.
__device__ float random_number(uint64_t seed, uint64_t place) {
    return (mixed(mixed(place) ^ seed) >> 40) * (1.0f / 16777216.0f);
}

template <typename T, typename W, typename A = Sum<T>>
__global__ void forward_kernel(const T* x, const W* gamma, const W* beta, T* y, A* mean_of, A* inv_std_of,
                               bool* kept, int64_t width, A eps, float p, A scale,
                               uint64_t seed) {
    const uint64_t start = uint64_t(blockIdx.x) * width;
    x += start;
    y += start;
    kept += start;
    const A pivot = wide(x[0]);
    A sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) sum += wide(x[i]) - pivot;
    const A mean = pivot + block_sum(sum) / width;

    A squares = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) squares += (wide(x[i]) - mean) * (wide(x[i]) - mean);
    const A inv_std = A(1) / sqrt(block_sum(squares) / width + eps);

    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        kept[i] = random_number(seed, start + i) >= p;
        const A normalised = (wide(x[i]) - mean) * inv_std * wide(gamma[i]) + wide(beta[i]);
        narrow(kept[i] ? normalised * scale : A(0), y[i]);
    }
    if (threadIdx.x == 0) {
        mean_of[blockIdx.x] = mean;
        inv_std_of[blockIdx.x] = inv_std;
    }
}

// A block for each row: its two means, then dx.
template <typename T, typename W, typename A = Sum<T>>
__global__ void dx_kernel(const T* dy, const T* x, const W* gamma, const A* mean_of, const A* inv_std_of,
                          const bool* kept, T* dx, int64_t width, A scale) {
    kept += blockIdx.x * width;
    dy += blockIdx.x * width;
    x += blockIdx.x * width;
    dx += blockIdx.x * width;
    const A mean = mean_of[blockIdx.x], inv_std = inv_std_of[blockIdx.x];
    A sum_g = 0, sum_g_xhat = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        const A g = kept[i] ? wide(dy[i]) * scale * wide(gamma[i]) : A(0);
        sum_g += g;
        sum_g_xhat += g * (wide(x[i]) - mean) * inv_std;
    }
    const A mean_g = block_sum(sum_g) / width, mean_g_xhat = block_sum(sum_g_xhat) / width;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        const A xhat = (wide(x[i]) - mean) * inv_std;
        const A g = kept[i] ? wide(dy[i]) * scale * wide(gamma[i]) : A(0);
        narrow(inv_std * (g - mean_g - xhat * mean_g_xhat), dx[i]);
    }
}

// A thread for each column of a chunk of rows. Neighbouring threads read neighbouring columns.
template <typename T, typename A = Sum<T>>
__global__ void chunk_sums_kernel(const T* dy, const T* x, const A* mean_of, const A* inv_std_of,
                                  const bool* kept, A* dgamma_of, A* dbeta_of, int64_t rows, int64_t width,
                                  A scale) {
    const int64_t column = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (column >= width) return;
    const int64_t first = int64_t(blockIdx.y) * kChunkRows, last = min(first + kChunkRows, rows);
    A dgamma = 0, dbeta = 0;
    for (int64_t row = first; row < last; row++) {
        const int64_t i = row * width + column;
        const A upstream = kept[i] ? wide(dy[i]) * scale : A(0);
        dgamma += upstream * (wide(x[i]) - mean_of[row]) * inv_std_of[row];
        dbeta += upstream;
    }
    dgamma_of[blockIdx.y * width + column] = dgamma;
    dbeta_of[blockIdx.y * width + column] = dbeta;
}

template <typename W, typename A>
__global__ void add_chunks_kernel(const A* dgamma_of, const A* dbeta_of, W* dgamma, W* dbeta, int64_t chunks,
                                  int64_t width) {
    const int64_t column = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (column >= width) return;
    A sum_gamma = 0, sum_beta = 0;
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        sum_gamma += dgamma_of[chunk * width + column];
        sum_beta += dbeta_of[chunk * width + column];
    }
    narrow(sum_gamma, dgamma[column]);
    narrow(sum_beta, dbeta[column]);
}

// `run(x's type, gamma's type)` for what the tensors hold; each is given as a zero of its type.
template <typename Run>
void choose(const torch::Tensor& x, const torch::Tensor& gamma, Run run) {
    const bool alike = gamma.scalar_type() == x.scalar_type();
    if (x.scalar_type() == torch::kFloat) run(0.0f, 0.0f);
    else if (x.scalar_type() == torch::kDouble) run(0.0, 0.0);
    else if (x.scalar_type() == torch::kHalf) alike ? run(__half(), __half()) : run(__half(), 0.0f);
    else alike ? run(__nv_bfloat16(), __nv_bfloat16()) : run(__nv_bfloat16(), 0.0f);
}

template <typename T>
T* data(const torch::Tensor& tensor) {
    return static_cast<T*>(tensor.data_ptr());
}

void check_like(const char* name, const torch::Tensor& tensor, const torch::Tensor& x) {
    TORCH_CHECK(tensor.device() == x.device() && tensor.scalar_type() == x.scalar_type(), "layer_norm: ", name, " is ",
                tensor.scalar_type(), " on ", tensor.device(), ", but must be ", x.scalar_type(), " on ",
                x.device());
}

void check_arguments(const torch::Tensor& x, const torch::Tensor& gamma) {
    TORCH_CHECK(x.is_cuda(), "layer_norm: x must be a CUDA tensor, got one on ", x.device());
    const auto type = x.scalar_type();
    const bool narrow = type == torch::kHalf || type == torch::kBFloat16;
    TORCH_CHECK(narrow || type == torch::kFloat || type == torch::kDouble,
                "layer_norm: x must be float16, bfloat16, float32 or float64, got ", type);
    if (!narrow || gamma.scalar_type() != torch::kFloat) check_like("gamma", gamma, x);
    TORCH_CHECK(gamma.device() == x.device(), "layer_norm: gamma is on ", gamma.device(), ", but x is on ", x.device());
    TORCH_CHECK(gamma.dim() >= 1 && x.dim() >= gamma.dim() &&
                    x.sizes().slice(x.dim() - gamma.dim()) == gamma.sizes(),
                "layer_norm: the last dimensions of x ", x.sizes(), " must be normalized_shape ", gamma.sizes());
}

unsigned blocks(int64_t count, const char* what) {
    TORCH_CHECK(count <= INT_MAX, "layer_norm: ", count, " ", what, ", but a grid has at most ", INT_MAX, " blocks");
    return static_cast<unsigned>(count);
}

std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, double eps, double p,
                                   int64_t seed) {
    TORCH_CHECK(p >= 0.0 && p <= 1.0, "layer_norm: p must be from 0 to 1, got ", p);
    check_arguments(x, gamma);
    check_like("beta", beta, gamma);
    TORCH_CHECK(beta.sizes() == gamma.sizes(), "layer_norm: beta has shape ", beta.sizes(), " but gamma has shape ",
                gamma.sizes());
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    gamma = gamma.contiguous();
    beta = beta.contiguous();
    const int64_t width = gamma.numel(), rows = width ? x.numel() / width : 0;
    auto y = torch::empty(x.sizes(), x.options());
    const auto sums = x.options().dtype(x.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat);
    auto mean = torch::empty({rows}, sums), inv_std = torch::empty_like(mean);
    auto mask = torch::empty(x.sizes(), x.options().dtype(torch::kBool));
    if (rows == 0) return {y, mean, inv_std, mask};  // a launch of no blocks is an error

    choose(x, gamma, [&](auto of_x, auto of_gamma) {
        using T = decltype(of_x);
        using W = decltype(of_gamma);
        forward_kernel<T, W><<<blocks(rows, "rows"), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
            data<T>(x), data<W>(gamma), data<W>(beta), data<T>(y), data<Sum<T>>(mean), data<Sum<T>>(inv_std),
            data<bool>(mask), width, static_cast<Sum<T>>(eps), static_cast<float>(p),
            static_cast<Sum<T>>(1.0 / (1.0 - p)), static_cast<uint64_t>(seed));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
    return {y, mean, inv_std, mask};
}

std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor x, torch::Tensor gamma, torch::Tensor mean,
                                    torch::Tensor inv_std, torch::Tensor mask, double p) {
    check_arguments(x, gamma);
    check_like("dy", dy, x);
    TORCH_CHECK(dy.sizes() == x.sizes(), "layer_norm: dy has shape ", dy.sizes(), " but x has shape ", x.sizes());
    const c10::cuda::CUDAGuard guard(x.device());
    dy = dy.contiguous();
    x = x.contiguous();
    gamma = gamma.contiguous();
    const int64_t width = gamma.numel(), rows = width ? x.numel() / width : 0;
    TORCH_CHECK(mean.numel() == rows && inv_std.numel() == rows, "layer_norm: ", rows, " rows, but ", mean.numel(),
                " means and ", inv_std.numel(), " inverse deviations");
    TORCH_CHECK(mask.scalar_type() == torch::kBool && mask.sizes() == x.sizes(), "layer_norm: the mask is ",
                mask.scalar_type(), " of shape ", mask.sizes(), ", but x has shape ", x.sizes());
    auto dx = torch::empty(x.sizes(), x.options());
    auto dgamma = torch::zeros(gamma.sizes(), gamma.options()), dbeta = torch::zeros_like(dgamma);
    if (rows == 0) return {dx, dgamma, dbeta};

    const int64_t chunks = (rows + kChunkRows - 1) / kChunkRows;
    TORCH_CHECK(chunks <= 65535, "layer_norm: ", rows, " rows, but this kernel adds up at most ",
                int64_t(65535) * kChunkRows);
    const auto dgamma_of = torch::empty({chunks, width}, mean.options()), dbeta_of = torch::empty_like(dgamma_of);
    const unsigned column_blocks = blocks((width + kThreads - 1) / kThreads, "blocks of columns");
    const auto stream = c10::cuda::getCurrentCUDAStream();
    const bool* kept = data<bool>(mask);
    choose(x, gamma, [&](auto of_x, auto of_gamma) {
        using T = decltype(of_x);
        using W = decltype(of_gamma);
        using A = Sum<T>;
        const A *mean_at = data<A>(mean), *inv_std_at = data<A>(inv_std);
        A *dgamma_at = data<A>(dgamma_of), *dbeta_at = data<A>(dbeta_of);
        const A scale = static_cast<A>(1.0 / (1.0 - p));
        dx_kernel<T, W><<<blocks(rows, "rows"), kThreads, 0, stream>>>(
            data<T>(dy), data<T>(x), data<W>(gamma), mean_at, inv_std_at, kept, data<T>(dx), width, scale);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        chunk_sums_kernel<T><<<dim3(column_blocks, static_cast<unsigned>(chunks)), kThreads, 0, stream>>>(
            data<T>(dy), data<T>(x), mean_at, inv_std_at, kept, dgamma_at, dbeta_at, rows, width, scale);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        add_chunks_kernel<W, A><<<column_blocks, kThreads, 0, stream>>>(dgamma_at, dbeta_at, data<W>(dgamma),
                                                                        data<W>(dbeta), chunks, width);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
    return {dx, dgamma, dbeta};
}
"""

extension = load_inline(
    name="layernorm_dropout_stored", cpp_sources=CPP, cuda_sources=CUDA, functions=["forward", "backward"]
)


class LayerNormDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps, p):
        seed = int(torch.randint(2**62, ()))
        y, mean, inv_std, mask = extension.forward(x, weight, bias, eps, p, seed)
        ctx.save_for_backward(x, weight, mean, inv_std, mask)
        ctx.p = p
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, mean, inv_std, mask = ctx.saved_tensors
        dx, dweight, dbias = extension.backward(dy, x, weight, mean, inv_std, mask, ctx.p)
        return dx, dweight, dbias, None, None


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, p=0.1, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.p = p

    def forward(self, x):
        return LayerNormDropout.apply(x, self.weight, self.bias, self.eps, self.p if self.training else 0.0)
