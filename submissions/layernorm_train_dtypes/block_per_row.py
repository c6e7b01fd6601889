"""LayerNorm's training step in 16 bits, to be read: values are widened when they are read, and narrowed when written.

The idea: fp16 has 11 bits and bf16 has 8, too few to add up in. So a block reads 16 bits, keeps its sums in fp32, and
rounds what it writes once. Statistics go to the backward in fp32. With xhat = (x - mean) inv_std and g = dy weight,

    dx      = inv_std (g - mean(g) - xhat mean(g xhat)),    the means over a row: one block for each row;
    dweight = sum of dy xhat,   dbias = sum of dy,          the sums over all rows: one thread for each column.

The rows of a column are cut into chunks, and a second kernel adds their sums up: in fp32, in a fixed order.

Numerics: the mean is summed as deviations from the row's first element, the variance in a second pass. fp64 keeps its
sums in fp64.

Bytes moved, forward: x three times from L2 or memory, y once. Backward: x and dy three times, dx once.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """
std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);
std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor x, torch::Tensor weight, torch::Tensor mean,
                                    torch::Tensor inv_std);
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

template <typename T, typename W>
__global__ void forward_kernel(const T* x, const W* weight, const W* bias, T* y, Sum<T>* mean_of, Sum<T>* inv_std_of,
                               int64_t width, Sum<T> eps) {
    using A = Sum<T>;
    x += blockIdx.x * width;
    y += blockIdx.x * width;
    const A pivot = wide(x[0]);
    A sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) sum += wide(x[i]) - pivot;
    const A mean = pivot + block_sum(sum) / width;

    A squares = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        const A deviation = wide(x[i]) - mean;
        squares += deviation * deviation;
    }
    const A inv_std = A(1) / sqrt(block_sum(squares) / width + eps);

    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        narrow((wide(x[i]) - mean) * inv_std * wide(weight[i]) + wide(bias[i]), y[i]);
    }
    if (threadIdx.x == 0) {
        mean_of[blockIdx.x] = mean;
        inv_std_of[blockIdx.x] = inv_std;
    }
}

// A block for each row: its two means, then dx.
template <typename T, typename W>
__global__ void dx_kernel(const T* dy, const T* x, const W* weight, const Sum<T>* mean_of, const Sum<T>* inv_std_of,
                          T* dx, int64_t width) {
    using A = Sum<T>;
    dy += blockIdx.x * width;
    x += blockIdx.x * width;
    dx += blockIdx.x * width;
    const A mean = mean_of[blockIdx.x], inv_std = inv_std_of[blockIdx.x];
    A sum_g = 0, sum_g_xhat = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        const A g = wide(dy[i]) * wide(weight[i]);
        sum_g += g;
        sum_g_xhat += g * (wide(x[i]) - mean) * inv_std;
    }
    const A mean_g = block_sum(sum_g) / width, mean_g_xhat = block_sum(sum_g_xhat) / width;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        const A xhat = (wide(x[i]) - mean) * inv_std;
        narrow(inv_std * (wide(dy[i]) * wide(weight[i]) - mean_g - xhat * mean_g_xhat), dx[i]);
    }
}

// A thread for each column of a chunk of rows. Neighbouring threads read neighbouring columns.
template <typename T>
__global__ void chunk_sums_kernel(const T* dy, const T* x, const Sum<T>* mean_of, const Sum<T>* inv_std_of,
                                  Sum<T>* dweight_of, Sum<T>* dbias_of, int64_t rows, int64_t width) {
    const int64_t column = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (column >= width) return;
    const int64_t first = int64_t(blockIdx.y) * kChunkRows, last = min(first + kChunkRows, rows);
    Sum<T> dweight = 0, dbias = 0;
    for (int64_t row = first; row < last; row++) {
        const Sum<T> upstream = wide(dy[row * width + column]);
        dweight += upstream * (wide(x[row * width + column]) - mean_of[row]) * inv_std_of[row];
        dbias += upstream;
    }
    dweight_of[blockIdx.y * width + column] = dweight;
    dbias_of[blockIdx.y * width + column] = dbias;
}

template <typename W, typename A>
__global__ void add_chunks_kernel(const A* dweight_of, const A* dbias_of, W* dweight, W* dbias, int64_t chunks,
                                  int64_t width) {
    const int64_t column = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (column >= width) return;
    A of_weight = 0, of_bias = 0;
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        of_weight += dweight_of[chunk * width + column];
        of_bias += dbias_of[chunk * width + column];
    }
    narrow(of_weight, dweight[column]);
    narrow(of_bias, dbias[column]);
}

// `launch(a value of x's type, a value of weight's type)` for what the tensors hold.
template <typename Launch>
void for_types(const torch::Tensor& x, const torch::Tensor& weight, Launch launch) {
    const bool alike = weight.scalar_type() == x.scalar_type();
    if (x.scalar_type() == torch::kHalf) alike ? launch(__half(), __half()) : launch(__half(), 0.0f);
    else if (x.scalar_type() == torch::kDouble) launch(0.0, 0.0);
    else alike ? launch(__nv_bfloat16(), __nv_bfloat16()) : launch(__nv_bfloat16(), 0.0f);
}

template <typename T>
T* data(const torch::Tensor& tensor) {
    return static_cast<T*>(tensor.data_ptr());
}

void check_arguments(const torch::Tensor& x, const torch::Tensor& weight) {
    TORCH_CHECK(x.is_cuda() && weight.device() == x.device(), "layer_norm: x is on ", x.device(), ", weight on ",
                weight.device(), "; both must be on one GPU");
    const auto type = x.scalar_type();
    TORCH_CHECK(type == torch::kHalf || type == torch::kBFloat16 || type == torch::kDouble,
                "layer_norm: x must be float16, bfloat16 or float64, got ", type);
    TORCH_CHECK(weight.scalar_type() == type || (weight.scalar_type() == torch::kFloat && type != torch::kDouble),
                "layer_norm: weight must be float32 or ", type, " like x, got ", weight.scalar_type());
    TORCH_CHECK(x.dim() >= weight.dim() && x.sizes().slice(x.dim() - weight.dim()) == weight.sizes(),
                "layer_norm: the last dimensions of x ", x.sizes(), " must be normalized_shape ", weight.sizes());
}

unsigned blocks(int64_t count, const char* what) {
    TORCH_CHECK(count <= INT_MAX, "layer_norm: ", count, " ", what, ", but a grid has at most ", INT_MAX, " blocks");
    return static_cast<unsigned>(count);
}

std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
    check_arguments(x, weight);
    TORCH_CHECK(bias.sizes() == weight.sizes() && bias.scalar_type() == weight.scalar_type(), "layer_norm: bias is ",
                bias.scalar_type(), " of ", bias.sizes(), " but weight is ", weight.scalar_type(), " of ",
                weight.sizes());
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    weight = weight.contiguous();
    bias = bias.contiguous();
    const int64_t width = weight.numel(), rows = width ? x.numel() / width : 0;
    auto y = torch::empty(x.sizes(), x.options());
    const auto sums = x.options().dtype(x.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat);
    auto mean = torch::empty({rows}, sums), inv_std = torch::empty({rows}, sums);
    if (rows == 0) return {y, mean, inv_std};  // a launch of no blocks is an error

    for_types(x, weight, [&](auto of_x, auto of_weight) {
        using T = decltype(of_x);
        using W = decltype(of_weight);
        forward_kernel<T, W><<<blocks(rows, "rows"), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
            data<T>(x), data<W>(weight), data<W>(bias), data<T>(y), data<Sum<T>>(mean), data<Sum<T>>(inv_std), width,
            static_cast<Sum<T>>(eps));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
    return {y, mean, inv_std};
}

std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor x, torch::Tensor weight, torch::Tensor mean,
                                    torch::Tensor inv_std) {
    check_arguments(x, weight);
    TORCH_CHECK(dy.sizes() == x.sizes() && dy.scalar_type() == x.scalar_type(), "layer_norm: dy is ",
                dy.scalar_type(), " of ", dy.sizes(), " but x is ", x.scalar_type(), " of ", x.sizes());
    const c10::cuda::CUDAGuard guard(x.device());
    dy = dy.contiguous();
    x = x.contiguous();
    weight = weight.contiguous();
    const int64_t width = weight.numel(), rows = mean.numel();
    auto dx = torch::empty(x.sizes(), x.options());
    auto dweight = torch::zeros(weight.sizes(), weight.options()), dbias = torch::zeros_like(dweight);
    if (rows == 0) return {dx, dweight, dbias};

    const int64_t chunks = (rows + kChunkRows - 1) / kChunkRows;
    TORCH_CHECK(chunks <= 65535, "layer_norm: ", rows, " rows, but this kernel adds up at most ",
                int64_t(65535) * kChunkRows);
    const auto dweight_of = torch::empty({chunks, width}, mean.options()), dbias_of = torch::empty_like(dweight_of);
    const unsigned column_blocks = blocks((width + kThreads - 1) / kThreads, "blocks of columns");
    const auto stream = c10::cuda::getCurrentCUDAStream();
    for_types(x, weight, [&](auto of_x, auto of_weight) {
        using T = decltype(of_x);
        using W = decltype(of_weight);
        using A = Sum<T>;
        dx_kernel<T, W><<<blocks(rows, "rows"), kThreads, 0, stream>>>(
            data<T>(dy), data<T>(x), data<W>(weight), data<A>(mean), data<A>(inv_std), data<T>(dx), width);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        chunk_sums_kernel<T><<<dim3(column_blocks, static_cast<unsigned>(chunks)), kThreads, 0, stream>>>(
            data<T>(dy), data<T>(x), data<A>(mean), data<A>(inv_std), data<A>(dweight_of), data<A>(dbias_of), rows,
            width);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        add_chunks_kernel<W, A><<<column_blocks, kThreads, 0, stream>>>(
            data<A>(dweight_of), data<A>(dbias_of), data<W>(dweight), data<W>(dbias), chunks, width);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
    return {dx, dweight, dbias};
}
"""

extension = load_inline(
    name="layernorm_train_block_per_row", cpp_sources=CPP, cuda_sources=CUDA, functions=["forward", "backward"]
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
