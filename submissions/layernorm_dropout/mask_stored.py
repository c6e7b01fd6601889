"""LayerNorm and dropout in one pass, to be read: the forward writes its mask down, the backward reads it.

The idea: a block for each row, and behind the normalisation one more line: an element whose random number is below p
becomes 0, the others are divided by 1 - p. The number comes from a hash of (seed, place of the element), so threads
need no generators of their own that have to be stored and kept apart; the seed is drawn by torch, so that
torch.manual_seed repeats a run. A byte for each element tells the backward what was kept: the gradient of what was
dropped is 0, and from there on it is LayerNorm's backward with dy kept / (1 - p) in the place of dy.

Numerics: the mean is summed as deviations from the row's first element, the variance in a second pass.

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
#include <climits>

constexpr int kWarp = 32, kThreads = 256;
constexpr int kChunkRows = 64;  // rows whose products one thread adds up
constexpr unsigned kAllLanes = 0xffffffffu;

template <typename T>
__device__ T warp_sum(T value) {
    for (int mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(kAllLanes, value, mask);
    return value;
}

// The sum of every thread's value, returned to all of them.
template <typename T>
__device__ T block_sum(T value) {
    __shared__ T sums[kThreads / kWarp];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    value = warp_sum(value);
    __syncthreads();  // the previous sums may still be being read
    if (lane == 0) sums[warp] = value;
    __syncthreads();
    return warp_sum(lane < kThreads / kWarp ? sums[lane] : T(0));
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

template <typename T>
__global__ void forward_kernel(const T* x, const T* gamma, const T* beta, T* y, T* mean_of, T* inv_std_of,
                               bool* kept, int64_t width, T eps, float p, uint64_t seed) {
    const uint64_t start = uint64_t(blockIdx.x) * width;
    x += start;
    y += start;
    kept += start;
    const T pivot = x[0];
    T sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) sum += x[i] - pivot;
    const T mean = pivot + block_sum(sum) / width;

    T squares = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) squares += (x[i] - mean) * (x[i] - mean);
    const T inv_std = T(1) / sqrt(block_sum(squares) / width + eps);

    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        kept[i] = random_number(seed, start + i) >= p;
        y[i] = kept[i] ? ((x[i] - mean) * inv_std * gamma[i] + beta[i]) / (T(1) - p) : T(0);
    }
    if (threadIdx.x == 0) {
        mean_of[blockIdx.x] = mean;
        inv_std_of[blockIdx.x] = inv_std;
    }
}

// A block for each row: its two means, then dx.
template <typename T>
__global__ void dx_kernel(const T* dy, const T* x, const T* gamma, const T* mean_of, const T* inv_std_of,
                          const bool* kept, T* dx, int64_t width, T scale) {
    kept += blockIdx.x * width;
    dy += blockIdx.x * width;
    x += blockIdx.x * width;
    dx += blockIdx.x * width;
    const T mean = mean_of[blockIdx.x], inv_std = inv_std_of[blockIdx.x];
    T sum_g = 0, sum_g_xhat = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        const T g = kept[i] ? dy[i] * scale * gamma[i] : T(0);
        sum_g += g;
        sum_g_xhat += g * (x[i] - mean) * inv_std;
    }
    const T mean_g = block_sum(sum_g) / width, mean_g_xhat = block_sum(sum_g_xhat) / width;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        const T xhat = (x[i] - mean) * inv_std;
        const T g = kept[i] ? dy[i] * scale * gamma[i] : T(0);
        dx[i] = inv_std * (g - mean_g - xhat * mean_g_xhat);
    }
}

// A thread for each column of a chunk of rows. Neighbouring threads read neighbouring columns.
template <typename T>
__global__ void chunk_sums_kernel(const T* dy, const T* x, const T* mean_of, const T* inv_std_of,
                                  const bool* kept, T* dgamma_of, T* dbeta_of, int64_t rows, int64_t width, T scale) {
    const int64_t column = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (column >= width) return;
    const int64_t first = int64_t(blockIdx.y) * kChunkRows, last = min(first + kChunkRows, rows);
    T dgamma = 0, dbeta = 0;
    for (int64_t row = first; row < last; row++) {
        const T upstream = kept[row * width + column] ? dy[row * width + column] * scale : T(0);
        dgamma += upstream * (x[row * width + column] - mean_of[row]) * inv_std_of[row];
        dbeta += upstream;
    }
    dgamma_of[blockIdx.y * width + column] = dgamma;
    dbeta_of[blockIdx.y * width + column] = dbeta;
}

template <typename T>
__global__ void add_chunks_kernel(const T* dgamma_of, const T* dbeta_of, T* dgamma, T* dbeta, int64_t chunks,
                                  int64_t width) {
    const int64_t column = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (column >= width) return;
    T sum_gamma = 0, sum_beta = 0;
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        sum_gamma += dgamma_of[chunk * width + column];
        sum_beta += dbeta_of[chunk * width + column];
    }
    dgamma[column] = sum_gamma;
    dbeta[column] = sum_beta;
}

void check_like(const char* name, const torch::Tensor& tensor, const torch::Tensor& x) {
    TORCH_CHECK(tensor.device() == x.device() && tensor.scalar_type() == x.scalar_type(), "layer_norm: ", name, " is ",
                tensor.scalar_type(), " on ", tensor.device(), ", but x is ", x.scalar_type(), " on ", x.device());
}

void check_arguments(const torch::Tensor& x, const torch::Tensor& gamma) {
    TORCH_CHECK(x.is_cuda(), "layer_norm: x must be a CUDA tensor, got one on ", x.device());
    TORCH_CHECK(x.scalar_type() == torch::kFloat, "layer_norm: x must be float32, got ", x.scalar_type());
    check_like("gamma", gamma, x);
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
    TORCH_CHECK(p >= 0.0 && p < 1.0, "layer_norm: p must be at least 0 and below 1, got ", p);
    check_arguments(x, gamma);
    check_like("beta", beta, x);
    TORCH_CHECK(beta.sizes() == gamma.sizes(), "layer_norm: beta has shape ", beta.sizes(), " but gamma has shape ",
                gamma.sizes());
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    gamma = gamma.contiguous();
    beta = beta.contiguous();
    const int64_t width = gamma.numel(), rows = width ? x.numel() / width : 0;
    auto y = torch::empty(x.sizes(), x.options());
    auto mean = torch::empty({rows}, x.options()), inv_std = torch::empty({rows}, x.options());
    auto mask = torch::empty(x.sizes(), x.options().dtype(torch::kBool));
    if (rows == 0) return {y, mean, inv_std, mask};  // a launch of no blocks is an error

    forward_kernel<float><<<blocks(rows, "rows"), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), gamma.data_ptr<float>(), beta.data_ptr<float>(), y.data_ptr<float>(),
        mean.data_ptr<float>(), inv_std.data_ptr<float>(), mask.data_ptr<bool>(), width, static_cast<float>(eps),
        static_cast<float>(p), static_cast<uint64_t>(seed));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
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
    auto dgamma = torch::zeros(gamma.sizes(), x.options()), dbeta = torch::zeros(gamma.sizes(), x.options());
    if (rows == 0) return {dx, dgamma, dbeta};

    const int64_t chunks = (rows + kChunkRows - 1) / kChunkRows;
    TORCH_CHECK(chunks <= 65535, "layer_norm: ", rows, " rows, but this kernel adds up at most ",
                int64_t(65535) * kChunkRows);
    const auto dgamma_of = torch::empty({chunks, width}, x.options()), dbeta_of = torch::empty_like(dgamma_of);
    const unsigned column_blocks = blocks((width + kThreads - 1) / kThreads, "blocks of columns");
    const auto stream = c10::cuda::getCurrentCUDAStream();
    const float *dy_at = dy.data_ptr<float>(), *x_at = x.data_ptr<float>();
    const float *mean_at = mean.data_ptr<float>(), *inv_std_at = inv_std.data_ptr<float>();
    const float scale = static_cast<float>(1.0 / (1.0 - p));
    dx_kernel<float><<<blocks(rows, "rows"), kThreads, 0, stream>>>(dy_at, x_at, gamma.data_ptr<float>(), mean_at,
                                                                    inv_std_at, mask.data_ptr<bool>(),
                                                                    dx.data_ptr<float>(), width, scale);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    chunk_sums_kernel<float><<<dim3(column_blocks, static_cast<unsigned>(chunks)), kThreads, 0, stream>>>(
        dy_at, x_at, mean_at, inv_std_at, mask.data_ptr<bool>(), dgamma_of.data_ptr<float>(),
        dbeta_of.data_ptr<float>(), rows, width, scale);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    add_chunks_kernel<float><<<column_blocks, kThreads, 0, stream>>>(
        dgamma_of.data_ptr<float>(), dbeta_of.data_ptr<float>(), dgamma.data_ptr<float>(), dbeta.data_ptr<float>(),
        chunks, width);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
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
