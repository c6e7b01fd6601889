"""Inline PTX as LayerNorm kernels use it."""

from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cstdint>

__device__ __forceinline__ float4 load_stream(const float4* p) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p));
    return v;
}
__device__ __forceinline__ void store_stream(float4* p, float4 v) {
    asm volatile("st.global.cs.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
                 : "memory");
}
__global__ void hints(const float4* x, float4* y) {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    float4 v = load_stream(x + threadIdx.x);
    float first;
    asm volatile("ld.global.L2::cache_hint.f32 %0, [%1 + 4], %2;" : "=f"(first) : "l"(x + threadIdx.x), "l"(policy));
    v.w += first;
    store_stream(y + threadIdx.x, v);
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__global__ void small_copies(const float4* x, float* y) {
    __shared__ float4 s[64];
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(shared_address(&s[threadIdx.x])),
                 "l"(x + threadIdx.x));
    const int bytes = threadIdx.x % 2 ? 16 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(shared_address(&s[threadIdx.x + 32])),
                 "l"(x + threadIdx.x), "n"(16), "r"(bytes));
    asm volatile("cp.async.commit_group;\n" ::);
    asm volatile("cp.async.wait_group %0;\n" ::"n"(0));
    __syncthreads();
    y[threadIdx.x] = s[31 - threadIdx.x].y + 1000.f * s[32 + threadIdx.x].z;
}

__global__ void bulk(const float* x, float* y, int rounds) {
    __shared__ alignas(128) float s[256];
    __shared__ alignas(8) uint64_t barrier;
    const uint32_t bar = shared_address(&barrier);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(1));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    float sum = 0;
    for (int round = 0; round < rounds; round++) {
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(1024) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
                         "[%3];" ::"r"(shared_address(s)),
                         "l"(x + 256 * round), "r"(1024), "r"(bar)
                         : "memory");
        }
        asm volatile(
            "{\n"
            ".reg .pred P1;\n"
            "WAIT:\n"
            "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
            "@P1 bra DONE;\n"
            "bra WAIT;\n"
            "DONE:\n"
            "}" ::"r"(bar),
            "r"(round & 1));
        sum += s[255 - threadIdx.x];
        __syncthreads();
    }
    s[threadIdx.x] = sum;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(y), "r"(shared_address(s)),
                     "r"(1024)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;");
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
}

__global__ void arithmetic(const float* x, float* y) {
    float r, e, f;
    uint32_t lane, packed, bits;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(4.0f));
    asm("ex2.approx.f32 %0, %1;" : "=f"(e) : "f"(3.0f));
    asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(f) : "f"(2.0f), "f"(x[threadIdx.x]), "f"(1.0f));
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(2.0f), "f"(1.0f));
    asm("{ .reg .pred p; setp.ge.u32 p, %1, 16; selp.b32 %0, 7, 9, p; }" : "=r"(bits) : "r"(lane));
    unsigned long long wide;
    asm("mov.b64 %0, {%1, %2};" : "=l"(wide) : "r"(5u), "r"(6u));
    float other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 0x1f, 0xffffffff;" : "=f"(other) : "f"(x[threadIdx.x]));
    const __half2 pair = *reinterpret_cast<__half2*>(&packed);
    y[threadIdx.x] = r + e;
    y[threadIdx.x + 32] = f;
    y[threadIdx.x + 64] = lane + 100 * bits;
    y[threadIdx.x + 96] = __low2float(pair) + 10 * __high2float(pair) + 100 * (wide >> 32) + 1000 * (wide & 15);
    y[threadIdx.x + 128] = other;
    float chosen;
    if (threadIdx.x % 2)
        asm("mul.f32 %0, %1, %2;" : "=f"(chosen) : "f"(x[threadIdx.x]), "f"(3.0f));
    else
        asm("mov.f32 %0, %1;" : "=f"(chosen) : "f"(-1.0f));
    y[threadIdx.x + 192] = chosen;
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(y + 160), "f"(1.0f) : "memory");
    asm volatile("bar.sync 1, 32;");
    asm volatile("" ::: "memory");
}

using torch::Tensor;
void run_hints(Tensor x, Tensor y) {
    hints<<<1, 32>>>((const float4*)x.data_ptr<float>(), (float4*)y.data_ptr<float>());
}
void run_small_copies(Tensor x, Tensor y) {
    small_copies<<<1, 32>>>((const float4*)x.data_ptr<float>(), y.data_ptr<float>());
}
void run_bulk(Tensor x, Tensor y) { bulk<<<1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), 3); }
void run_arithmetic(Tensor x, Tensor y) { arithmetic<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
"""

NAMES = ("hints", "small_copies", "bulk", "arithmetic")
DECLARATIONS = "".join(f"void run_{n}(torch::Tensor x, torch::Tensor y);\n" for n in NAMES)
extension = load_inline(
    name="assembly", cpp_sources=DECLARATIONS, cuda_sources=CUDA, functions=[f"run_{n}" for n in NAMES]
)


def run(torch):
    """What each kernel wrote for x = 0, 1, 2, ..."""
    results = {}
    for name in NAMES:
        y = torch.zeros(512, device="cuda")
        getattr(extension, f"run_{name}")(torch.arange(1024, dtype=torch.float32).cuda(), y)
        results[name] = y.cpu().tolist()
    return results
