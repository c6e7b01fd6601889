"""LayerNorms in the styles that submissions use, as one extension."""

from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
namespace cg = cooperative_groups;

// One block a row, strided loads, a tree in dynamic shared memory.
__global__ void tree(const float* x, const float* w, const float* b, float* y, int n, float eps) {
    extern __shared__ float sums[];
    const float* row = x + (size_t)blockIdx.x * n;
    const int t = threadIdx.x;
    float sum = 0.f;
    for (int i = t; i < n; i += blockDim.x) sum += row[i];
    sums[t] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) sums[t] += sums[t + half];
        __syncthreads();
    }
    const float mean = sums[0] / n;
    __syncthreads();
    float squares = 0.f;
    for (int i = t; i < n; i += blockDim.x) squares += (row[i] - mean) * (row[i] - mean);
    sums[t] = squares;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) sums[t] += sums[t + half];
        __syncthreads();
    }
    const float scale = rsqrtf(sums[0] / n + eps);
    for (int i = t; i < n; i += blockDim.x) y[(size_t)blockIdx.x * n + i] = (row[i] - mean) * scale * w[i] + b[i];
}

// Warp shuffles and float4, the block size a template parameter.
__device__ __forceinline__ float warp_sum(float v) {
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}
template <int Threads>
__device__ float block_sum(float v) {
    __shared__ float parts[Threads / 32];
    v = warp_sum(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x % 32 < Threads / 32 ? parts[threadIdx.x % 32] : 0.f;
    return warp_sum(v);
}
template <int Threads>
__global__ void __launch_bounds__(Threads) shuffles(const float4* __restrict__ x, const float4* __restrict__ w,
                                                    const float4* __restrict__ b, float4* __restrict__ y, int n4,
                                                    float eps) {
    const float4* row = x + (size_t)blockIdx.x * n4;
    float sum = 0.f;
    for (int i = threadIdx.x; i < n4; i += Threads) {
        const float4 v = __ldg(row + i);
        sum += v.x + v.y + v.z + v.w;
    }
    const float mean = block_sum<Threads>(sum) / (4 * n4);
    float squares = 0.f;
    for (int i = threadIdx.x; i < n4; i += Threads) {
        const float4 v = row[i];
        squares += (v.x - mean) * (v.x - mean) + (v.y - mean) * (v.y - mean) + (v.z - mean) * (v.z - mean) +
                   (v.w - mean) * (v.w - mean);
    }
    const float scale = rsqrtf(block_sum<Threads>(squares) / (4 * n4) + eps);
    for (int i = threadIdx.x; i < n4; i += Threads) {
        const float4 v = row[i], g = w[i], o = b[i];
        y[(size_t)blockIdx.x * n4 + i] =
            make_float4((v.x - mean) * scale * g.x + o.x, (v.y - mean) * scale * g.y + o.y,
                        (v.z - mean) * scale * g.z + o.z, (v.w - mean) * scale * g.w + o.w);
    }
}

// Several blocks a row: partial sums, then a second kernel.
__global__ void partial(const float* x, float2* parts, int n, int per) {
    __shared__ float2 warps[8];
    const int from = blockIdx.y * per, to = min(n, from + per);
    float sum = 0.f, squares = 0.f;
    for (int i = from + threadIdx.x; i < to; i += blockDim.x) {
        const float v = x[(size_t)blockIdx.x * n + i];
        sum += v;
        squares += v * v;
    }
    sum = warp_sum(sum);
    squares = warp_sum(squares);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = make_float2(sum, squares);
    __syncthreads();
    if (threadIdx.x) return;
    for (unsigned i = 1; i < blockDim.x / 32; i++) {
        sum += warps[i].x;
        squares += warps[i].y;
    }
    parts[blockIdx.x * gridDim.y + blockIdx.y] = make_float2(sum, squares);
}
__global__ void finish(const float* x, const float* w, const float* b, float* y, const float2* parts, int n, int per,
                       float eps) {
    double sum = 0, squares = 0;
    for (unsigned i = 0; i < gridDim.y; i++) {
        sum += parts[blockIdx.x * gridDim.y + i].x;
        squares += parts[blockIdx.x * gridDim.y + i].y;
    }
    const double mean = sum / n;
    const float scale = rsqrtf((float)(squares / n - mean * mean) + eps);
    const int from = blockIdx.y * per, to = min(n, from + per);
    for (int i = from + threadIdx.x; i < to; i += blockDim.x) {
        const size_t at = (size_t)blockIdx.x * n + i;
        y[at] = (x[at] - (float)mean) * scale * w[i] + b[i];
    }
}

// The same in one cooperative kernel.
__global__ void grid_wide(const float* x, const float* w, const float* b, float* y, float2* parts, int n, int per,
                          float eps) {
    cg::grid_group grid = cg::this_grid();
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    __shared__ float2 warps[8];
    __shared__ float mean, scale;
    const int from = blockIdx.y * per, to = min(n, from + per);
    float sum = 0.f, squares = 0.f;
    for (int i = from + block.thread_rank(); i < to; i += block.size()) {
        const float v = x[(size_t)blockIdx.x * n + i];
        sum += v;
        squares += v * v;
    }
    sum = cg::reduce(warp, sum, cg::plus<float>());
    squares = cg::reduce(warp, squares, cg::plus<float>());
    if (warp.thread_rank() == 0) warps[warp.meta_group_rank()] = make_float2(sum, squares);
    block.sync();
    if (threadIdx.x == 0) {
        for (unsigned i = 1; i < warp.meta_group_size(); i++) {
            sum += warps[i].x;
            squares += warps[i].y;
        }
        parts[blockIdx.x * gridDim.y + blockIdx.y] = make_float2(sum, squares);
    }
    grid.sync();
    if (threadIdx.x == 0) {
        double s = 0, q = 0;
        for (unsigned i = 0; i < gridDim.y; i++) {
            s += parts[blockIdx.x * gridDim.y + i].x;
            q += parts[blockIdx.x * gridDim.y + i].y;
        }
        mean = (float)(s / n);
        scale = rsqrtf((float)(q / n - s / n * (s / n)) + eps);
    }
    __syncthreads();
    for (int i = from + threadIdx.x; i < to; i += blockDim.x) {
        const size_t at = (size_t)blockIdx.x * n + i;
        y[at] = (x[at] - mean) * scale * w[i] + b[i];
    }
}

// Any floating type: 16 bits are read in pairs.
template <typename T>
__global__ void typed(const T* x, const T* w, const T* b, T* y, int n, float eps) {
    float sum = 0.f, squares = 0.f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const float v = static_cast<float>(x[(size_t)blockIdx.x * n + i]);
        sum += v;
        squares += v * v;
    }
    const float mean = block_sum<128>(sum) / n;
    const float scale = rsqrtf(block_sum<128>(squares) / n - mean * mean + eps);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const size_t at = (size_t)blockIdx.x * n + i;
        y[at] = static_cast<T>((static_cast<float>(x[at]) - mean) * scale * static_cast<float>(w[i]) +
                               static_cast<float>(b[i]));
    }
}

using torch::Tensor;
Tensor run_tree(Tensor x, Tensor w, Tensor b) {
    TORCH_CHECK(x.is_cuda(), "x must be on the device");
    auto y = torch::empty_like(x);
    const int n = w.numel(), threads = 256;
    tree<<<x.numel() / n, threads, threads * sizeof(float)>>>(x.data_ptr<float>(), w.data_ptr<float>(),
                                                              b.data_ptr<float>(), y.data_ptr<float>(), n, 1e-5);
    return y;
}
const float4* four(const Tensor& t) { return reinterpret_cast<const float4*>(t.data_ptr<float>()); }
Tensor run_shuffles(Tensor x, Tensor w, Tensor b) {
    const c10::cuda::CUDAGuard guard(x.device());
    auto y = torch::empty_like(x);
    const int n4 = w.numel() / 4;
    auto stream = at::cuda::getCurrentCUDAStream();
    shuffles<128><<<dim3(x.numel() / 4 / n4), dim3(128), 0, stream>>>(
        four(x), four(w), four(b), reinterpret_cast<float4*>(y.data_ptr<float>()), n4, 1e-5f);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
Tensor run_split(Tensor x, Tensor w, Tensor b) {
    auto y = torch::empty_like(x);
    const int n = w.numel(), rows = x.numel() / n, per = 200;
    dim3 blocks(rows, (n + per - 1) / per);
    auto parts = torch::empty({rows, (int)blocks.y, 2}, x.options());
    auto* p = reinterpret_cast<float2*>(parts.data_ptr<float>());
    partial<<<blocks, 128>>>(x.data_ptr<float>(), p, n, per);
    finish<<<blocks, 64>>>(x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), p, n,
                           per, 1e-5f);
    AT_CUDA_CHECK(cudaGetLastError());
    return y;
}
Tensor run_grid(Tensor x, Tensor w, Tensor b) {
    auto y = torch::empty_like(x);
    int n = w.numel(), rows = x.numel() / n, per = 200;
    dim3 blocks(rows, (n + per - 1) / per);
    auto parts = torch::empty({rows, (int)blocks.y, 2}, x.options());
    const float *px = x.data_ptr<float>(), *pw = w.data_ptr<float>(), *pb = b.data_ptr<float>();
    float *py = y.data_ptr<float>(), eps = 1e-5f;
    float2* pp = reinterpret_cast<float2*>(parts.data_ptr<float>());
    void* arguments[] = {&px, &pw, &pb, &py, &pp, &n, &per, &eps};
    C10_CUDA_CHECK(cudaLaunchCooperativeKernel((void*)grid_wide, blocks, dim3(128), arguments, 0,
                                               at::cuda::getCurrentCUDAStream()));
    return y;
}
Tensor run_typed(Tensor x, Tensor w, Tensor b) {
    auto y = torch::empty_like(x);
    const int n = w.numel();
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "typed", [&] {
        typed<scalar_t><<<x.numel() / n, 128>>>(x.data_ptr<scalar_t>(), w.data_ptr<scalar_t>(),
                                                b.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n, 1e-5f);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

NAMES = ("tree", "shuffles", "split", "grid", "typed")
DECLARATIONS = "".join(f"torch::Tensor run_{n}(torch::Tensor x, torch::Tensor w, torch::Tensor b);\n" for n in NAMES)
extension = load_inline(
    name="layernorms", cpp_sources=DECLARATIONS, cuda_sources=CUDA, functions=[f"run_{n}" for n in NAMES]
)


def run(torch):
    """The largest error of each kernel over some shapes."""
    errors = {}
    for name in NAMES:
        for rows, n in ((3, 128), (5, 1024), (2, 3000)):
            x, w, b = torch.randn(rows, n), torch.rand(n) + 0.5, torch.randn(n)
            expected = torch.nn.functional.layer_norm(x, (n,), w, b)
            y = getattr(extension, f"run_{name}")(x.to("cuda"), w.cuda(), b.cuda())
            assert y.is_cuda
            errors[f"{name} {rows}x{n}"] = (y.cpu() - expected).abs().max().item()
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        x, w, b = torch.randn(4, 512).to(dtype), torch.rand(512).to(dtype), torch.randn(512).to(dtype)
        expected = torch.nn.functional.layer_norm(x.double(), (512,), w.double(), b.double())
        y = extension.run_typed(x.cuda(), w.cuda(), b.cuda())
        errors[str(dtype)] = ((y.cpu().double() - expected).abs().max() * torch.finfo(torch.float32).eps).item()
    return errors
