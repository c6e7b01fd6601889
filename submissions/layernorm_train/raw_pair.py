"""LayerNorm's training step, to be read: the raw pair of a forward and a backward, and a Function around it.

The idea: `forward -> (y, mean, inv_std)` hands on what the backward would have to compute again, and
`backward -> (dx, dgamma, dbeta)` follows from the chain rule. With xhat = (x - mean) inv_std and g = dy gamma,

    dx     = inv_std (g - mean(g) - xhat mean(g xhat)),    the means over a row: one block for each row;
    dgamma = sum of dy xhat,   dbeta = sum of dy,          the sums over all rows: one thread for each column.

A block is enough for a row, but a column is as long as the batch. So the rows are cut into chunks, each chunk's
sums are written down, and a second kernel adds those up. Atomic additions would need no second kernel, and would
give other bits in every run.

Numerics: the mean is summed as deviations from the row's first element, the variance in a second pass.

Bytes moved, forward: x three times from L2 or memory, y once. Backward: x and dy three times, dx once.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """
std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, double eps);
std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor x, torch::Tensor gamma, torch::Tensor mean,
                                    torch::Tensor inv_std);
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

template <typename T>
__global__ void forward_kernel(const T* x, const T* gamma, const T* beta, T* y, T* mean_of, T* inv_std_of,
                               int64_t width, T eps) {
    x += blockIdx.x * width;
    y += blockIdx.x * width;
    const T pivot = x[0];
    T sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) sum += x[i] - pivot;
    const T mean = pivot + block_sum(sum) / width;

    T squares = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) squares += (x[i] - mean) * (x[i] - mean);
    const T inv_std = T(1) / sqrt(block_sum(squares) / width + eps);

    for (int64_t i = threadIdx.x; i < width; i += kThreads) y[i] = (x[i] - mean) * inv_std * gamma[i] + beta[i];
    if (threadIdx.x == 0) {
        mean_of[blockIdx.x] = mean;
        inv_std_of[blockIdx.x] = inv_std;
    }
}

// A block for each row: its two means, then dx.
template <typename T>
__global__ void dx_kernel(const T* dy, const T* x, const T* gamma, const T* mean_of, const T* inv_std_of, T* dx,
                          int64_t width) {
    dy += blockIdx.x * width;
    x += blockIdx.x * width;
    dx += blockIdx.x * width;
    const T mean = mean_of[blockIdx.x], inv_std = inv_std_of[blockIdx.x];
    T sum_g = 0, sum_g_xhat = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        const T g = dy[i] * gamma[i];
        sum_g += g;
        sum_g_xhat += g * (x[i] - mean) * inv_std;
    }
    const T mean_g = block_sum(sum_g) / width, mean_g_xhat = block_sum(sum_g_xhat) / width;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        const T xhat = (x[i] - mean) * inv_std;
        dx[i] = inv_std * (dy[i] * gamma[i] - mean_g - xhat * mean_g_xhat);
    }
}

// A thread for each column of a chunk of rows. Neighbouring threads read neighbouring columns.
template <typename T>
__global__ void chunk_sums_kernel(const T* dy, const T* x, const T* mean_of, const T* inv_std_of, T* dgamma_of,
                                  T* dbeta_of, int64_t rows, int64_t width) {
    const int64_t column = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (column >= width) return;
    const int64_t first = int64_t(blockIdx.y) * kChunkRows, last = min(first + kChunkRows, rows);
    T dgamma = 0, dbeta = 0;
    for (int64_t row = first; row < last; row++) {
        const T upstream = dy[row * width + column];
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
    TORCH_CHECK(x.scalar_type() == torch::kFloat || x.scalar_type() == torch::kDouble,
                "layer_norm: x must be float32 or float64, got ", x.scalar_type());
    check_like("gamma", gamma, x);
    TORCH_CHECK(gamma.dim() >= 1 && x.dim() >= gamma.dim() &&
                    x.sizes().slice(x.dim() - gamma.dim()) == gamma.sizes(),
                "layer_norm: the last dimensions of x ", x.sizes(), " must be normalized_shape ", gamma.sizes());
}

unsigned blocks(int64_t count, const char* what) {
    TORCH_CHECK(count <= INT_MAX, "layer_norm: ", count, " ", what, ", but a grid has at most ", INT_MAX, " blocks");
    return static_cast<unsigned>(count);
}

std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, double eps) {
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
    if (rows == 0) return {y, mean, inv_std};  // a launch of no blocks is an error

    const auto launch = [&](auto zero) {
        using T = decltype(zero);
        forward_kernel<T><<<blocks(rows, "rows"), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<T>(), gamma.data_ptr<T>(), beta.data_ptr<T>(), y.data_ptr<T>(), mean.data_ptr<T>(),
            inv_std.data_ptr<T>(), width, static_cast<T>(eps));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    x.scalar_type() == torch::kFloat ? launch(0.0f) : launch(0.0);
    return {y, mean, inv_std};
}

std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor x, torch::Tensor gamma, torch::Tensor mean,
                                    torch::Tensor inv_std) {
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
    auto dx = torch::empty(x.sizes(), x.options());
    auto dgamma = torch::zeros(gamma.sizes(), x.options()), dbeta = torch::zeros(gamma.sizes(), x.options());
    if (rows == 0) return {dx, dgamma, dbeta};

    const int64_t chunks = (rows + kChunkRows - 1) / kChunkRows;
    TORCH_CHECK(chunks <= 65535, "layer_norm: ", rows, " rows, but this kernel adds up at most ",
                int64_t(65535) * kChunkRows);
    const auto dgamma_of = torch::empty({chunks, width}, x.options()), dbeta_of = torch::empty_like(dgamma_of);
    const unsigned column_blocks = blocks((width + kThreads - 1) / kThreads, "blocks of columns");
    const auto stream = c10::cuda::getCurrentCUDAStream();
    const auto launch = [&](auto zero) {
        using T = decltype(zero);
        const T *dy_at = dy.data_ptr<T>(), *x_at = x.data_ptr<T>();
        const T *mean_at = mean.data_ptr<T>(), *inv_std_at = inv_std.data_ptr<T>();
        dx_kernel<T><<<blocks(rows, "rows"), kThreads, 0, stream>>>(dy_at, x_at, gamma.data_ptr<T>(), mean_at,
                                                                    inv_std_at, dx.data_ptr<T>(), width);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        chunk_sums_kernel<T><<<dim3(column_blocks, static_cast<unsigned>(chunks)), kThreads, 0, stream>>>(
            dy_at, x_at, mean_at, inv_std_at, dgamma_of.data_ptr<T>(), dbeta_of.data_ptr<T>(), rows, width);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        add_chunks_kernel<T><<<column_blocks, kThreads, 0, stream>>>(
            dgamma_of.data_ptr<T>(), dbeta_of.data_ptr<T>(), dgamma.data_ptr<T>(), dbeta.data_ptr<T>(), chunks, width);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    x.scalar_type() == torch::kFloat ? launch(0.0f) : launch(0.0);
    return {dx, dgamma, dbeta};
}
"""

extension = load_inline(
    name="layernorm_raw_pair", cpp_sources=CPP, cuda_sources=CUDA, functions=["forward", "backward"]
)


class LayerNorm(torch.autograd.Function):
    """Calls the pair where autograd wants a forward and a backward."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        y, mean, inv_std = extension.forward(x, weight, bias, eps)
        ctx.save_for_backward(x, weight, mean, inv_std)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, mean, inv_std = ctx.saved_tensors
        dx, dweight, dbias = extension.backward(dy, x, weight, mean, inv_std)
        return dx, dweight, dbias, None


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return LayerNorm.apply(x, self.weight, self.bias, self.eps)
