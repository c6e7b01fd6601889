"""Libraries and language features: cooperative groups, CUB, asynchronous copies, clusters, half types."""

from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <common_functions.h>
#include <cub/cub.cuh>
#include <cuda/pipeline>
#include <cuda_pipeline.h>
#include <device_functions.h>
#include <device_launch_parameters.h>
#include <math_functions.h>
namespace cg = cooperative_groups;

__global__ void groups(const float* x, float* y) {
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<8>(block);
    const float v = x[block.thread_rank()];
    y[threadIdx.x] = cg::reduce(tile, v, cg::plus<float>());
    y[threadIdx.x + 64] = cg::inclusive_scan(tile, v);
    y[threadIdx.x + 128] = cg::exclusive_scan(tile, v);
    y[threadIdx.x + 192] = tile.shfl(v, 3) + tile.shfl_xor(v, 1) * 1000.f;
    if (threadIdx.x % 3 == 0) {
        auto some = cg::coalesced_threads();
        y[threadIdx.x + 256] = some.size() + 100.f * some.thread_rank() + 10000.f * some.shfl(v, 0);
    } else {
        y[threadIdx.x + 256] = -1;
    }
    auto parts = cg::labeled_partition(cg::tiled_partition<32>(block), (int)threadIdx.x % 2);
    y[threadIdx.x + 320] = cg::reduce(parts, v, cg::greater<float>());
}

__global__ void primitives(const float* x, float* y) {
    using Reduce = cub::BlockReduce<float, 128>;
    using Scan = cub::BlockScan<float, 128>;
    using Load = cub::BlockLoad<float, 128, 2, cub::BLOCK_LOAD_TRANSPOSE>;
    using Warp = cub::WarpReduce<float>;
    __shared__ union {
        typename Reduce::TempStorage reduce;
        typename Scan::TempStorage scan;
        typename Load::TempStorage load;
    } storage;
    __shared__ typename Warp::TempStorage warps[4];
    const float v = x[threadIdx.x];
    const float sum = Reduce(storage.reduce).Sum(v);
    __syncthreads();
    const float largest = Reduce(storage.reduce).Reduce(v, cub::Max(), 100);
    __syncthreads();
    float before, upto;
    Scan(storage.scan).ExclusiveSum(v, before);
    __syncthreads();
    Scan(storage.scan).InclusiveSum(v, upto);
    __syncthreads();
    float pair[2];
    Load(storage.load).Load(x, pair);
    y[threadIdx.x] = before;
    y[threadIdx.x + 128] = upto;
    y[threadIdx.x + 256] = pair[0] * 1000 + pair[1];
    const float in_warp = Warp(warps[threadIdx.x / 32]).Sum(v);
    if (threadIdx.x % 32 == 0) y[384 + threadIdx.x / 32] = in_warp;
    __syncthreads();
    const float few = Reduce(storage.reduce).Sum(v, 50);
    __syncthreads();
    float all, of_pairs[2];
    Scan(storage.scan).InclusiveSum(pair, of_pairs, all);
    if (threadIdx.x == 0) {
        y[400] = sum;
        y[401] = largest;
        y[402] = few;
    }
    if (threadIdx.x == 3) {
        y[403] = of_pairs[0];
        y[404] = all;
    }
    const float five = Warp(warps[threadIdx.x / 32]).Sum(v, 5);
    if (threadIdx.x == 32) y[405] = five;
    using Lanes = cub::WarpScan<float>;
    __shared__ typename Lanes::TempStorage lanes[4];
    Lanes(lanes[threadIdx.x / 32]).ExclusiveScan(v, before, 1000.f, cub::Sum(), all);
    if (threadIdx.x == 34) {
        y[406] = before;
        y[407] = all;
    }
}

struct Total {
    float total;
    __device__ float operator()(float sum) {
        const float before = total;
        total += sum;
        return before;
    }
};
struct Last {
    __device__ float operator()(float a, float b) const { return b != 0 ? b : a; }
};
__global__ void prefixes(const float* x, float* y) {
    using Scan = cub::BlockScan<float, 64>;
    __shared__ typename Scan::TempStorage storage;
    const int t = threadIdx.x;
    Total of_tiles{0}, of_pairs{0}, more_pairs{5};
    for (int tile = 0; tile < 128; tile += 64) {
        float upto;
        Scan(storage).InclusiveSum(x[tile + t], upto, of_tiles);
        y[tile + t] = upto;
        __syncthreads();
    }
    for (int tile = 0; tile < 256; tile += 128) {
        float pair[2] = {x[tile + 2 * t], x[tile + 2 * t + 1]}, upto[2];
        Scan(storage).InclusiveSum(pair, upto, more_pairs);
        __syncthreads();
        Scan(storage).ExclusiveSum(pair, pair, of_pairs);
        __syncthreads();
        for (int i = 0; i < 2; i++) {
            y[128 + tile + 2 * t + i] = pair[i];
            y[384 + tile + 2 * t + i] = upto[i];
        }
    }
    const float some = t % 5 == 1 ? x[t] : 0;  // Last asks for their order
    float before, pair[2] = {some, 0}, both[2] = {0, some};
    auto prefix = [](float all) { return 1000 + all; };
    Scan(storage).ExclusiveScan(some, before, Last(), prefix);
    __syncthreads();
    Scan(storage).InclusiveScan(pair, pair, Last());
    __syncthreads();
    Scan(storage).ExclusiveScan(both, both, 7.f, Last());
    y[640 + t] = before;
    y[704 + t] = pair[1];
    y[768 + t] = both[1];
}

__global__ void copies(const float4* x, float* y) {
    __shared__ float4 a[64], b[64], c[64];
    auto block = cg::this_thread_block();
    __pipeline_memcpy_async(&a[threadIdx.x], x + threadIdx.x, 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    cg::memcpy_async(block, b, x + 64, sizeof(float4) * 64);
    cg::wait(block);
    auto pipe = cuda::make_pipeline();
    pipe.producer_acquire();
    cuda::memcpy_async(&c[threadIdx.x], x + 128 + threadIdx.x, cuda::aligned_size_t<16>(16), pipe);
    pipe.producer_commit();
    pipe.consumer_wait();
    pipe.consumer_release();
    __syncthreads();
    y[threadIdx.x] = a[63 - threadIdx.x].x + b[63 - threadIdx.x].y * 1000.f;
    y[threadIdx.x + 64] = c[63 - threadIdx.x].z;
}

__global__ void in_bulk(const float4* x, float* y) {
    namespace cde = cuda::device::experimental;
    using Barrier = cuda::barrier<cuda::thread_scope_block>;
    __shared__ alignas(128) float4 a[32], b[32];
    __shared__ Barrier barrier;
    if (threadIdx.x == 0) {
        init(&barrier, blockDim.x);
        cde::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    Barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cde::cp_async_bulk_global_to_shared(a, x, sizeof a, barrier);
        cuda::device::memcpy_async_tx(b, x + 32, cuda::aligned_size_t<16>(sizeof b), barrier);
        token = cuda::device::barrier_arrive_tx(barrier, 1, sizeof a + sizeof b);
    } else {
        token = barrier.arrive();
    }
    barrier.wait(std::move(token));
    a[threadIdx.x].y += b[31 - threadIdx.x].z;
    cde::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        cde::cp_async_bulk_shared_to_global(y, a, sizeof a);
        cde::cp_async_bulk_commit_group();
        cde::cp_async_bulk_wait_group_read<0>();
    }
}

__global__ void too_early(const float4* x, float* y) {
    __shared__ float4 a[32];
    a[threadIdx.x] = make_float4(-1, -1, -1, -1);
    __pipeline_memcpy_async(&a[threadIdx.x], x + threadIdx.x, 16);
    __pipeline_commit();
    y[threadIdx.x] = a[threadIdx.x].x;
    __pipeline_wait_prior(0);
    y[threadIdx.x + 32] = a[threadIdx.x].x;
}

__global__ void __cluster_dims__(4, 1, 1) clusters(const float* x, float* y) {
    __shared__ float mine;
    auto cluster = cg::this_cluster();
    if (threadIdx.x == 0) mine = x[blockIdx.x];
    cluster.sync();
    if (threadIdx.x == 0) {
        float sum = 0;
        for (unsigned r = 0; r < cluster.num_blocks(); r++) sum += *cluster.map_shared_rank(&mine, r);
        y[blockIdx.x] = sum + 1000.f * cluster.block_rank();
    }
    cluster.sync();
}

__global__ void halfs(const __half* x, float* y) {
    const __half2* pairs = reinterpret_cast<const __half2*>(x);
    const __half2 p = pairs[threadIdx.x];
    const __half2 r = __hfma2(p, __float2half2_rn(2.f), __half2half2(__float2half(1.f)));
    y[2 * threadIdx.x] = __low2float(r);
    y[2 * threadIdx.x + 1] = __high2float(r);
    const __nv_bfloat16 b = __float2bfloat16(3.14159f);
    y[64 + threadIdx.x] = __bfloat162float(__hadd(b, b)) + __half2float(hrsqrt(__float2half(4.f)));
    const float2 f = __half22float2(__shfl_xor_sync(0xffffffffu, p, 1));
    y[96 + threadIdx.x] = f.x + f.y;
    y[128 + threadIdx.x] = __half2float(__hmax(p.x, p.y)) + (__hgt(p.y, p.x) ? 1000.f : 0.f);
}

__global__ void votes(const float* x, float* y, int* n) {
    const bool odd = (int)x[threadIdx.x] & 1;
    y[threadIdx.x] = __popc(__ballot_sync(0xffffffffu, odd)) + 100 * __any_sync(0xffffffffu, odd) +
                     1000 * __all_sync(0xffffffffu, odd);
    y[32 + threadIdx.x] = __reduce_add_sync(0xffffffffu, (int)threadIdx.x) + __syncthreads_count(odd) * 1000;
    y[64 + threadIdx.x] = __popc(__match_any_sync(0xffffffffu, (int)threadIdx.x / 5));
    y[96 + threadIdx.x] = __shfl_up_sync(0xffffffffu, x[threadIdx.x], 2, 8);
    y[128 + threadIdx.x] = __syncthreads_or(threadIdx.x == 7) + 2 * __syncthreads_and(threadIdx.x == 7);
    atomicMax(n, (int)threadIdx.x);
    atomicAdd(n + 1, 1);
    atomicCAS(n + 2, 0, 5);
    atomicInc((unsigned*)n + 3, 9);
}
template <typename T> __global__ void scaled(const T* x, T* y, T by) { y[threadIdx.x] = x[threadIdx.x] * by; }

using torch::Tensor;
void run_groups(Tensor x, Tensor y) { groups<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
void run_primitives(Tensor x, Tensor y) { primitives<<<1, 128>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
void run_prefixes(Tensor x, Tensor y) { prefixes<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
void run_copies(Tensor x, Tensor y) { copies<<<1, 64>>>((const float4*)x.data_ptr<float>(), y.data_ptr<float>()); }
void run_in_bulk(Tensor x, Tensor y) {
    in_bulk<<<1, 32>>>((const float4*)x.data_ptr<float>(), y.data_ptr<float>());
}
void run_too_early(Tensor x, Tensor y) {
    too_early<<<1, 32>>>((const float4*)x.data_ptr<float>(), y.data_ptr<float>());
}
void run_clusters(Tensor x, Tensor y) { clusters<<<8, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
void run_clusters_ex(Tensor x, Tensor y) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(8);
    config.blockDim = dim3(32);
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = 2;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    C10_CUDA_CHECK(cudaLaunchKernelEx(&config, clusters, (const float*)x.data_ptr<float>(), y.data_ptr<float>()));
}
void run_halfs(Tensor x, Tensor y) {
    auto h = x.to(torch::kHalf);
    halfs<<<1, 32>>>(reinterpret_cast<const __half*>(h.data_ptr<at::Half>()), y.data_ptr<float>());
}
void run_votes(Tensor x, Tensor y) {
    auto n = torch::zeros({4}, x.options().dtype(torch::kInt));
    votes<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), n.data_ptr<int>());
    y.slice(0, 160, 164).copy_(n);
}
#define LAUNCH(kernel, blocks, threads, ...) kernel<<<blocks, threads>>>(__VA_ARGS__)
void run_launches(Tensor x, Tensor y) {
    const float* px = x.data_ptr<float>();
    float* py = y.data_ptr<float>();
    scaled<<<1, 8>>>(px, py, 2.f);                      // deduced
    scaled<float><<<dim3(1, 1), dim3{8, 1, 1}>>>(px + 8, py + 8, 3);
    LAUNCH(scaled<float>, 1, 8, px + 16, py + 16, 4.f);
    auto pointer = &scaled<float>;
    pointer<<<1, 8, 0, nullptr>>>(px + 24, py + 24, 5.f);
    float by = 6.f;
    px += 32;
    py += 32;
    void* arguments[] = {&px, &py, &by};
    C10_CUDA_CHECK(cudaLaunchKernel((const void*)scaled<float>, dim3(1), dim3(8), arguments, 0, nullptr));
}
"""

NAMES = (
    "groups",
    "primitives",
    "prefixes",
    "copies",
    "in_bulk",
    "too_early",
    "clusters",
    "clusters_ex",
    "halfs",
    "votes",
    "launches",
)
DECLARATIONS = "".join(f"void run_{n}(torch::Tensor x, torch::Tensor y);\n" for n in NAMES)
extension = load_inline(
    name="features", cpp_sources=DECLARATIONS, cuda_sources=CUDA, functions=[f"run_{n}" for n in NAMES]
)


def run(torch):
    """What each kernel wrote for x = 0, 1, 2, ..."""
    results = {}
    for name in NAMES:
        y = torch.zeros(1024, device="cuda")
        getattr(extension, f"run_{name}")(torch.arange(1024, dtype=torch.float32).cuda(), y)
        results[name] = y.cpu().tolist()
    return results
