"""LayerNorm with as little traffic as possible: fp32, fp16 and bf16, statistics in fp32. fp64 is right, and not fast.

Rows up to 16,384 fp32 elements (32,768 of 16 bits) live in the registers of a block or a warp: x is read
once, y is written once. All loads of a thread are on their way before the first is used, and few registers a
thread leave room for many rows on a multiprocessor, so that some load while others sum or store. Weight and bias
are asked for with x where their registers allow it: few rows wait for memory once then, and not twice.

Rows of up to 65,536 fp32 elements (262,144 of 16 bits) that fall into equal parts are held by a cluster of eight
blocks or fewer, which tell each other the moments of their parts. So are few rows, though a block could hold them: more
multiprocessors load sooner. Clusters are built for sm_90a alone, as is the ring.

The ring takes longer fp32 rows, and all rows of which there are many and that no block holds, if they are whole slices
of 128 KB and weights are like x. A row is spread over a team of blocks, one for each multiprocessor, and x is read
once. A thread keeps a few bulk copies of x on their way into a ring in shared memory, four warps sum what has arrived,
two exchange statistics with the other blocks, eight write y into the place of x, and a thread sends it by bulk copies.
Writers hold bias and a quarter of weight in registers, which the other warps leave to them (`setmaxnreg`): without
that they spill.

What else is long is split over blocks, and x is read twice. A block computes the output of a chunk of columns
for all rows, so that weight and bias are read once: for each row they would move more bytes than x itself.
Four rows are on their way at a time. The output is computed in the reverse order of the statistics, because
their end is what L2 still holds, and what will not be used again is marked so.

Other widths and alignments go element by element.

Numerics: the mean of what a block or a warp holds, then deviations from it, their squares, and their own mean:
what rounding took from the first. Neither a large mean nor an outlier costs digits, but for three bits of the squares
in the ring for 16 bits. Parts of a long row are joined by the formula of Chan, Golub and LeVeque (1983).

Small inputs cost a call, an allocation and a launch. The function is given to Python without pybind11's
conversion of arguments, which costs more than all checks.

Bytes moved: short rows x and y once, 8192x4096 in fp32 268 MB, 63 us at 4.26 TB/s. The (16, 64, 256, 256)
case 570 MB, 134 us; three quarters of weight come from L2 for each row but the first.
docs/notes/speed-of-light.md says what was predicted and measured, also of what was tried and is not here.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

ALSO_FOR = ["layernorm_dtypes"]  # one kernel for all dtypes

CPP = r"""
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);

static PyObject* python_layer_norm(PyObject*, PyObject* const* given, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    TORCH_CHECK_TYPE(count == 4 && THPVariable_Check(given[0]) && THPVariable_Check(given[1]) &&
                         THPVariable_Check(given[2]) && PyFloat_Check(given[3]),
                     "layer_norm takes the tensors x, weight and bias, and eps, a float");
    return THPVariable_Wrap(layer_norm(THPVariable_Unpack(given[0]), THPVariable_Unpack(given[1]),
                                       THPVariable_Unpack(given[2]), PyFloat_AS_DOUBLE(given[3])));
    END_HANDLE_TH_ERRORS
}

static PyMethodDef functions[] = {
    {"layer_norm", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(python_layer_norm)),
     METH_FASTCALL, "layer_norm(x, weight, bias, eps) -> y"},
    {}};

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    if (PyModule_AddFunctions(m.ptr(), functions) != 0) throw py::error_already_set();
}
"""

CUDA = r"""
#include <ATen/cuda/EmptyTensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cooperative_groups.h>
#include <algorithm>
#include <atomic>
#include <climits>
#include <type_traits>
#include <utility>

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

// ------------------------------------------------------------------------------------------------------
// Packs: several values in one load or store, of 16 bytes at most.

constexpr int alignment(int bytes) { return bytes >= 16 ? 16 : bytes; }

template <typename T, int kSize>
struct alignas(alignment(kSize * sizeof(T))) Pack {
    static constexpr int kValues = kSize;
    T at[kSize];
};

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }

template <typename T>
__device__ __forceinline__ T from_float(float v);
template <>
__device__ __forceinline__ float from_float(float v) { return v; }
template <>
__device__ __forceinline__ __half from_float(float v) { return __float2half_rn(v); }
template <>
__device__ __forceinline__ __nv_bfloat16 from_float(float v) { return __float2bfloat16_rn(v); }

// The last time a long row's x is read, and its y: in passing, so that L2 keeps the x that is still to come.
template <typename P>
__device__ __forceinline__ P load_once(const P* p) {
    static_assert(sizeof(P) == 16, "one load");
    const uint4 v = __ldcs(reinterpret_cast<const uint4*>(p));
    return reinterpret_cast<const P&>(v);
}

template <typename P>
__device__ __forceinline__ void store_once(P* p, const P& pack) {
    static_assert(sizeof(P) == 16, "one store");
    __stcs(reinterpret_cast<uint4*>(p), reinterpret_cast<const uint4&>(pack));
}

// ------------------------------------------------------------------------------------------------------
// Statistics: two passes over a row that is held on chip, first its mean, then deviations from it and their
// squares. The deviations' own mean is what rounding took from the first; it stays a number of its own, since
// added to a large mean it would be rounded away again.

__device__ __forceinline__ float2 operator+(const float2& a, const float2& b) {
    return make_float2(a.x + b.x, a.y + b.y);
}
__device__ __forceinline__ float shuffled(float v, int mask) { return __shfl_xor_sync(kAllLanes, v, mask); }
__device__ __forceinline__ double shuffled(double v, int mask) { return __shfl_xor_sync(kAllLanes, v, mask); }
__device__ __forceinline__ float2 shuffled(const float2& v, int mask) {
    return make_float2(shuffled(v.x, mask), shuffled(v.y, mask));
}

// The sum over each kLanes neighbouring lanes, for all of them.
template <int kLanes = kWarp, typename V>
__device__ __forceinline__ V sum_over_lanes(V v) {
#pragma unroll
    for (int mask = kLanes / 2; mask > 0; mask /= 2) v = v + shuffled(v, mask);
    return v;
}

// The sum over the threads of a row, at most kWarps warps, for all of them. `of_warps` is shared memory that no
// sum before the last one has used, so one barrier is enough.
template <int kWarps, typename V>
__device__ __forceinline__ V sum_over_row(V v, V* of_warps) {
    v = sum_over_lanes(v);
    if constexpr (kWarps > 1) {
        const int lane = threadIdx.x % kWarp, partial = lane % kWarps;
        if (lane == 0) of_warps[threadIdx.x / kWarp] = v;
        __syncthreads();
        v = sum_over_lanes<kWarps>(partial < blockDim.x / kWarp ? of_warps[partial] : V{});
    }
    return v;
}

// Makes the compiler convert 16-bit values again for the next pass. It would keep them as fp32, in twice the registers.
template <typename P>
__device__ __forceinline__ void keep_packed(P& pack) {
    static_assert(sizeof(P) == 16, "four registers");
    uint4& v = reinterpret_cast<uint4&>(pack);
    asm volatile("" : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w));
}

template <typename T, int kSize>
__device__ __forceinline__ float sum_of(const Pack<T, kSize>& pack) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kSize; j++) sum += to_float(pack.at[j]);
    return sum;
}

// -> deviations from `mean`, and their squares
template <typename T, int kSize>
__device__ __forceinline__ float2 deviations_of(const Pack<T, kSize>& pack, float mean) {
    float2 sums = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int j = 0; j < kSize; j++) {
        const float d = to_float(pack.at[j]) - mean;
        sums.x += d;
        sums.y = fmaf(d, d, sums.y);
    }
    return sums;
}

struct Statistics {
    float mean, correction, rstd;  // the mean is the sum of the first two
};

// `sums`: deviations from `mean`, and their squares.
__device__ __forceinline__ Statistics statistics_of(float mean, const float2& sums, float width, float eps) {
    const float correction = __fdividef(sums.x, width);
    return {mean, correction, rsqrtf(fmaxf(__fdividef(sums.y, width) - correction * correction, 0.0f) + eps)};
}

// Of so many values: their mean in two parts, a number close to it and what that lacks, and the squares of deviations
// from it.
struct Moments {
    float mean, correction, squares;

    // The sum of two floats and its rounding error (Knuth).
    __device__ __forceinline__ void move_mean(float by) {
        const float moved = mean + by, back = moved - mean;
        correction += (mean - (moved - back)) + (by - back);
        mean = moved;
    }
};

// What a part adds to a whole of parts that have `count` values each: how far its mean is from some reference, and
// squares around that. Any reference does; one of the parts' means costs no digits.
__device__ __forceinline__ float2 around(const Moments& reference, const Moments& part, float count) {
    const float delta = (part.mean - reference.mean) + (part.correction - reference.correction);
    return make_float2(delta, fmaf(delta * delta, count, part.squares));
}

// -> the moments of `parts` parts of `count` values each, `sums` being what they added. A NaN stays one: no fmaxf.
__device__ __forceinline__ Moments whole(Moments reference, const float2& sums, float count, float parts) {
    const float share = __fdividef(sums.x, parts), squares = fmaf(-count * sums.x, share, sums.y);
    reference.squares = squares < 0.0f ? 0.0f : squares;
    reference.move_mean(share);
    return reference;
}

template <typename T, typename W, int kSize>
__device__ __forceinline__ Pack<T, kSize> normalised(const Pack<T, kSize>& x, const Pack<W, kSize>& weight,
                                                     const Pack<W, kSize>& bias, const Statistics& row) {
    const float shift = -row.correction * row.rstd;
    Pack<T, kSize> y;
#pragma unroll
    for (int j = 0; j < kSize; j++) {
        const float unit = fmaf(to_float(x.at[j]) - row.mean, row.rstd, shift);
        y.at[j] = from_float<T>(fmaf(unit, to_float(weight.at[j]), to_float(bias.at[j])));
    }
    return y;
}

// ------------------------------------------------------------------------------------------------------
// Kernels of one stream that overlap: the next may take its place on the device while this one's last blocks are
// at work, and waits there until everything before it has ended and can be seen; nothing is read or written
// sooner. It saves the time between two launches (programmatic dependent launch, CUDA C++ Programming Guide).

// The next kernel may begin when each block has executed launch_dependents or has ended. To execute it costs the device
// a nanosecond, so only the last blocks do: when they run, the others have ended.
constexpr unsigned kLastBlocks = 4096;  // about as many as an H200 has room for, 132 times 32

__device__ __forceinline__ void wait_for_turn() {
#if __CUDA_ARCH__ >= 900
    if (gridDim.x - blockIdx.x <= kLastBlocks) asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Whether the current device runs these kernels as they are for Hopper. A later GPU compiles what is for sm_80, in
// which wait_for_turn is empty: there nothing may begin early. Asked once for a device, since each call wants to know.
bool is_hoppers(const void* kernel) {
    static std::atomic<char> known[64] = {};  // of devices that were asked for: 'y' or 'n'
    int device = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    std::atomic<char>& answer = known[device % 64];
    if (!answer) {
        cudaFuncAttributes compiled = {};
        C10_CUDA_CHECK(cudaFuncGetAttributes(&compiled, kernel));
        answer = compiled.ptxVersion >= 90 ? 'y' : 'n';
    }
    return answer == 'y';
}

// For kernels that begin with wait_for_turn, in clusters of so many blocks.
template <typename... Parameters, typename... Arguments>
void launch_early(void (*kernel)(Parameters...), dim3 blocks, unsigned of_cluster, dim3 threads, cudaStream_t stream,
                  Arguments... arguments) {
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {of_cluster, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = !is_hoppers(reinterpret_cast<const void*>(kernel)) ? 0 : of_cluster == 1 ? 1 : 2;
    C10_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

// ------------------------------------------------------------------------------------------------------
// A warp, a block or a cluster of blocks has a row in registers. All of its loads are on their way before the first
// is used, and many rows share a multiprocessor, so that some load while others sum or store.

// What a thread has of the packs of a row, or of a block's part of one: one, and every `stride`th from there, kLoads in
// all. With kEarly weight and bias are asked for with x, so that a row which no other hides waits for memory once;
// elsewhere their registers would cost more than the wait.
template <typename T, typename W, int kLoads, bool kEarly>
struct Share {
    static constexpr int kSize = 16 / sizeof(T);
    using P = Pack<T, kSize>;
    using Q = Pack<W, kSize>;
    P kept[kLoads];
    Q early_weight[kEarly ? kLoads : 1], early_bias[kEarly ? kLoads : 1];
    const Q *weight, *bias;
    int stride, left;

    // Only a thread's last pack may lie behind the row's end: so few threads are launched (`fills`). Then it loads the
    // row's last one, and does not count it. A load under a condition would let the compiler use the others first.
    __device__ __forceinline__ bool here(int k) const { return k < kLoads - 1 || k * stride <= left; }
    __device__ __forceinline__ int at(int k) const { return k < kLoads - 1 ? k * stride : min(k * stride, left); }

    __device__ __forceinline__ Share(const T* x, const W* all_weight, const W* all_bias, int packs, int stride)
        : weight(reinterpret_cast<const Q*>(all_weight) + threadIdx.x),
          bias(reinterpret_cast<const Q*>(all_bias) + threadIdx.x), stride(stride), left(packs - 1 - int(threadIdx.x)) {
        const P* in = reinterpret_cast<const P*>(x) + threadIdx.x;
#pragma unroll
        for (int k = 0; k < kLoads; k++) kept[k] = in[at(k)];
        if constexpr (kEarly) {
#pragma unroll
            for (int k = 0; k < kLoads; k++) {
                early_weight[k] = weight[at(k)];
                early_bias[k] = bias[at(k)];
            }
        }
    }

    __device__ __forceinline__ float sum() const {
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
            const float more = sum_of(kept[k]);
            sum += here(k) ? more : 0.0f;
        }
        return sum;
    }

    __device__ __forceinline__ float2 deviations(float mean) {
        float2 sums = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
            keep_packed(kept[k]);
            const float2 more = deviations_of(kept[k], mean);
            sums = sums + (here(k) ? more : make_float2(0.0f, 0.0f));
        }
        return sums;
    }

    __device__ __forceinline__ void store(T* y, const Statistics& row) {
        P* out = reinterpret_cast<P*>(y) + threadIdx.x;
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
            keep_packed(kept[k]);
            const Q scale = kEarly ? early_weight[kEarly ? k : 0] : weight[at(k)];
            const Q shift = kEarly ? early_bias[kEarly ? k : 0] : bias[at(k)];
            if (here(k)) out[k * stride] = normalised(kept[k], scale, shift, row);
        }
    }
};

template <typename T, typename W, int kThreads, int kBlocks, int kLoads, bool kEarly, bool kWarpRow>
__global__ void __launch_bounds__(kThreads, kBlocks)
block_rows(const T* x, const W* weight, const W* bias, T* y, int64_t rows, int packs, float eps) {
    constexpr int kWarps = kWarpRow ? 1 : kThreads / kWarp;
    const int64_t row = kWarpRow ? int64_t(blockIdx.x) * blockDim.y + threadIdx.y : blockIdx.x;
    wait_for_turn();
    if (kWarpRow && row >= rows) return;
    using Mine = Share<T, W, kLoads, kEarly>;
    const int64_t first = row * packs * Mine::kSize;
    Mine mine(x + first, weight, bias, packs, kWarpRow ? kWarp : blockDim.x);
    __shared__ float of_warps[kWarps];
    __shared__ float2 deviations_of_warps[kWarps];
    const float width = float(packs) * Mine::kSize;
    const float mean = __fdividef(sum_over_row<kWarps>(mine.sum(), of_warps), width);
    const float2 sums = sum_over_row<kWarps>(mine.deviations(mean), deviations_of_warps);
    mine.store(y + first, statistics_of(mean, sums, width, eps));
}

constexpr int kMostBlocks = 8;  // of a cluster; more are not portable (CUDA C++ Programming Guide)

// `packs` are those of a block, as many in each of a cluster. Each tells all others the moments of what it has.
template <typename T, typename W, int kThreads, int kBlocks, int kLoads, bool kEarly>
__global__ void __launch_bounds__(kThreads, kBlocks)
cluster_rows(const T* x, const W* weight, const W* bias, T* y, int packs, float eps) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // nothing launches this elsewhere
    constexpr int kWarps = kThreads / kWarp;
    const auto cluster = cooperative_groups::this_cluster();
    const int blocks = cluster.num_blocks(), block = cluster.block_rank();
    wait_for_turn();
    auto begun = cluster.barrier_arrive();  // shared memory of a block is there once it has begun
    using Mine = Share<T, W, kLoads, kEarly>;
    const int64_t first = int64_t(blockIdx.x) * packs * Mine::kSize, column = int64_t(block) * packs * Mine::kSize;
    Mine mine(x + first, weight + column, bias + column, packs, blockDim.x);
    __shared__ float of_warps[kWarps];
    __shared__ float2 deviations_of_warps[kWarps];
    __shared__ Moments of_blocks[kMostBlocks];
    const float count = float(packs) * Mine::kSize;
    const float mean = __fdividef(sum_over_row<kWarps>(mine.sum(), of_warps), count);
    const float2 sums = sum_over_row<kWarps>(mine.deviations(mean), deviations_of_warps);
    cluster.barrier_wait(std::move(begun));
    if (threadIdx.x < blocks) {
        const float correction = __fdividef(sums.x, count);
        *cluster.map_shared_rank(of_blocks + block, threadIdx.x) =
            Moments{mean, correction, fmaf(-correction, sums.x, sums.y)};
    }
    cluster.sync();
    float2 joined = make_float2(0.0f, 0.0f);
    for (int i = 0; i < blocks; i++) joined = joined + around(of_blocks[0], of_blocks[i], count);
    const Moments row = whole(of_blocks[0], joined, count, float(blocks));
    mine.store(y + first, {row.mean, row.correction, rsqrtf(__fdividef(row.squares, count * blocks) + eps)});
#endif
}

// ------------------------------------------------------------------------------------------------------
// Barriers in shared memory, bulk copies and hints: what C++ has no words for.

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void make_barrier(uint64_t* barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(shared_address(barrier)) : "memory");
}

// Whether the phase of this parity is over. On a fresh barrier parity 1 counts as over: the first wait for a free slot
// passes.
__device__ __forceinline__ bool is_over(uint64_t* barrier, unsigned parity) {
    unsigned over;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                 : "=r"(over) : "r"(shared_address(barrier)), "r"(parity) : "memory");
    return over;
}

__device__ __forceinline__ void wait(uint64_t* barrier, unsigned parity) {
    unsigned over = 0;
    while (!over) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                     : "=r"(over) : "r"(shared_address(barrier)), "r"(parity) : "memory");
    }
}

// x and y pass once, weight is read for every row: what L2 should let go of first, and last.
__device__ __forceinline__ uint64_t evicted_first() {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ uint64_t evicted_last() {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

template <typename P>
__device__ __forceinline__ P load_with(const P* p, uint64_t policy) {
    static_assert(sizeof(P) == 16, "one load");
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.b32 {%0,%1,%2,%3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p), "l"(policy));
    return reinterpret_cast<const P&>(v);
}

template <typename P>
__device__ __forceinline__ void store_with(P* p, const P& pack, uint64_t policy) {
    static_assert(sizeof(P) == 16, "one store");
    const uint4& v = reinterpret_cast<const uint4&>(pack);
    asm volatile("st.global.L1::no_allocate.L2::cache_hint.v4.b32 [%0], {%1,%2,%3,%4}, %5;"
                 : : "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "l"(policy) : "memory");
}

// Between what threads wrote into shared memory and a bulk copy that reads it.
__device__ __forceinline__ void show_to_copies() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

__device__ __forceinline__ void bulk_load(void* to, const void* from, unsigned bytes, uint64_t* arrived,
                                          uint64_t policy) {
    const unsigned barrier = shared_address(arrived);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;"
                 : : "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(barrier), "l"(policy) : "memory");
}

__device__ __forceinline__ void bulk_prefetch(const void* from, unsigned bytes, uint64_t policy) {
    asm volatile("cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, %2;"
                 : : "l"(from), "r"(bytes), "l"(policy) : "memory");
}

__device__ __forceinline__ void bulk_store(void* to, const void* from, unsigned bytes, uint64_t policy) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;"
                 : : "l"(to), "r"(shared_address(from)), "r"(bytes), "l"(policy) : "memory");
    asm volatile("cp.async.bulk.commit_group;" : : : "memory");
}

template <typename F, int... kAll>
__device__ __forceinline__ void for_each_of(std::integer_sequence<int, kAll...>, const F& use) {
    (use(std::integral_constant<int, kAll>{}), ...);
}

// `use` of each number below kCount, as a constant, so that registers can be indexed with it.
template <int kCount, typename F>
__device__ __forceinline__ void for_each_below(const F& use) {
    for_each_of(std::make_integer_sequence<int, kCount>{}, use);
}

// Waits until at most `left` of this thread's bulk stores, at most kMost, are not yet written.
template <int kMost>
__device__ __forceinline__ void wait_for_stores(int left) {
    for_each_below<kMost + 1>([&](auto number) {
        constexpr int kNumber = decltype(number)::value;
        if (left == kNumber) asm volatile("cp.async.bulk.wait_group %0;" : : "n"(kNumber) : "memory");
    });
}

// More registers for some warps, and fewer for others, of what a block was launched with. For sm_90a alone.
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(kRegisters));
#endif
}

template <int kRegisters>
__device__ __forceinline__ void leave_registers() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(kRegisters));
#endif
}

// ------------------------------------------------------------------------------------------------------
// Mail: a block's moments for all other blocks of its team.

// Memory is all ones before. Each word says by itself whether it has come, so neither the order of the four matters nor
// whether they come together.
struct alignas(16) Mail {
    float mean, correction, squares, unused;
};

__device__ __forceinline__ float without_ones(float v) { return v == v ? v : __int_as_float(0x7fc00000); }

__device__ __forceinline__ void send(Mail* to, const Moments& v) {
    asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1,%2,%3,%4};"
                 : : "l"(to), "f"(without_ones(v.mean)), "f"(without_ones(v.correction)),
                     "f"(without_ones(v.squares)), "f"(0.0f) : "memory");
}

__device__ __forceinline__ Mail look(const Mail* from) {
    Mail v;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.mean), "=f"(v.correction), "=f"(v.squares), "=f"(v.unused) : "l"(from) : "memory");
    return v;
}

__device__ __forceinline__ bool has_come(const Mail& v) {
    return max(max(__float_as_uint(v.mean), __float_as_uint(v.correction)), __float_as_uint(v.squares)) != ~0u;
}

// ------------------------------------------------------------------------------------------------------
// ring_rows: each row spread over a team of blocks, one for each multiprocessor, and read once. Each warp has one task.
// A chunk of 8 KB arrives in a slot of a ring in shared memory, is summed, waits for the row's statistics, gives its
// place to y, is sent, and leaves the slot to the chunk that is kSlots further on. So while one row is written, the
// next arrives and is summed. Writers that wait for statistics hold the row's first chunks in registers, whose slots
// are free the sooner.

// Warps by task. setmaxnreg is for four warps at a time: 8 * 224 + 8 * 32 registers of 32 lanes each are all 65,536.
constexpr int kWriters = 8, kSummers = 4, kMovers = 4;
constexpr int kLoader = kWriters + kSummers, kStorer = kLoader + 1, kPostmen = kStorer + 1, kPostmenWarps = 2;
constexpr int kRingThreads = (kWriters + kSummers + kMovers) * kWarp;
constexpr int kWriterRegisters = 224, kSummerRegisters = 32, kMoverRegisters = 32;

constexpr int kPackBytes = 16;
constexpr int kChunkPacks = 2;  // of a writer's lane
constexpr int kChunk = kWriters * kWarp * kChunkPacks;
constexpr unsigned kChunkBytes = kChunk * kPackBytes;
constexpr int kSummed = kChunk / (kSummers * kWarp);  // packs of a chunk, of a summer's lane
constexpr int kChunks = 16;                           // of a row, of a block
constexpr int kSlice = kChunks * kChunk;
constexpr int kLanePacks = kChunks * kChunkPacks;  // of a row, of a writer's lane
constexpr int kSlots = 28;                         // 224 KB, all that barriers leave of shared memory
constexpr int kRingShared = kSlots * kChunkBytes;
constexpr int kBulkAlignment = 128;  // bulk copies to other places in shared memory work, and are slower

// Short queues: memory that is full of loads and stores delays the mail. What is asked into L2 fills no queue of the
// multiprocessor, and shortens the way of what is loaded next.
constexpr int kLoadsUnderWay = 3;
constexpr int kStoresUnderWay = 2;
constexpr int kChunksAhead = 3;
constexpr int kNapNs = 20;  // between two looks at the mail, which is in L2, where all that is copied passes

constexpr int kTaken = 4;  // of a row's chunks, into the writers' registers

// A load waits for the one that set out kLoadsUnderWay before. A barrier tells a phase from the one before it, no more,
// so that load must be less than a round of the ring behind.
static_assert(kLoadsUnderWay < kSlots, "a load would wait for itself");
// All of a row arrives before any of it is written.
static_assert(kSlots >= kChunks && kTaken <= kChunks, "a row must fit into the ring");
// What is kept of a row has two places: row r + 2 takes those of row r. Its last chunk takes the slot of the chunk
// kSlots before, which is one of row r + 1 or later. Writers take or write that one when they have written row r.
static_assert(kSlots < 2 * kChunks, "a row might be summed before its places are free");

// Packs of weight in registers; the others come from L2, so many ahead. The two kinds alternate: what comes from L2 has
// nearly twice the time that it would have one behind the other.
constexpr int kHeldWeights = 8, kStreamedWeights = kLanePacks - kHeldWeights, kWeightsAhead = 2;
static_assert(kStreamedWeights % kWeightsAhead == 0, "each has its register in every row");

__host__ __device__ constexpr int held_before(int pack) { return pack * kHeldWeights / kLanePacks; }
__host__ __device__ constexpr bool is_held(int pack) { return held_before(pack + 1) > held_before(pack); }
__host__ __device__ constexpr int streamed(int number) {
    int pack = 0;
    while (is_held(pack) || pack - held_before(pack) != number) pack++;
    return pack;
}

// Where a chunk is in the ring, and whether the ring has gone round an even number of times.
struct Place {
    int slot = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void advance() {
        if (++slot == kSlots) {
            slot = 0;
            parity ^= 1;
        }
    }
};

template <typename P>
__global__ void __launch_bounds__(kRingThreads, 1)
ring_rows(const P* x, const P* weight, const P* bias, P* y, Mail* mail, int rows, int blocks, float eps) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // bulk copies; nothing launches this elsewhere
    extern __shared__ __align__(kBulkAlignment) unsigned char ring_memory[];
    P* const ring = reinterpret_cast<P*>(ring_memory);
    // Of a slot: x is there; x is summed, and y is in its place or writers have taken it; it may be loaded again.
    __shared__ uint64_t arrived[kSlots], written[kSlots], vacated[kSlots];
    __shared__ uint64_t summed[2], known[2];  // of even and odd rows: summers are done, all mail has come
    __shared__ Moments of_summers[2][kSummers];
    __shared__ float4 of_postmen[2][kPostmenWarps];  // the reference's mean and correction, and sums around it
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    const int block = blockIdx.x % blocks, team = blockIdx.x / blocks, teams = gridDim.x / blocks;
    const int turns = (rows - team + teams - 1) / teams;  // rows of this team
    if (threadIdx.x < kSlots) {
        make_barrier(&arrived[threadIdx.x], 1);
        make_barrier(&written[threadIdx.x], kWriters + kSummers);
        make_barrier(&vacated[threadIdx.x], 1);
        show_to_copies();
    } else if (threadIdx.x < kSlots + 2) {
        make_barrier(&summed[threadIdx.x - kSlots], kSummers);
        make_barrier(&known[threadIdx.x - kSlots], kPostmenWarps);
    }
    __syncthreads();

    const auto row_of = [&](int turn) { return team + int64_t(turn) * teams; };
    // Where the chunk lies in x and y that is the team's `number`th.
    const auto place_of = [&](int number) {
        return ((row_of(number / kChunks) * blocks + block) * kChunks + number % kChunks) * kChunk;
    };
    constexpr float kSliceCount = float(kSlice) * P::kValues;

    if (warp < kWriters) {
        take_registers<kWriterRegisters>();
        const uint64_t once = evicted_first(), often = evicted_last();
        const int mine = warp * kChunkPacks * kWarp + lane;  // in a chunk
        const P* const w = weight + int64_t(block) * kSlice + mine;
        const P* const b = bias + int64_t(block) * kSlice + mine;
        const auto column = [](int k) { return k / kChunkPacks * kChunk + k % kChunkPacks * kWarp; };
        P shift[kLanePacks], held[kHeldWeights], ahead[kWeightsAhead];
        for_each_below<kLanePacks>([&](auto pack) {
            constexpr int k = decltype(pack)::value;
            shift[k] = load_with(b + column(k), once);
            if constexpr (is_held(k)) held[held_before(k)] = load_with(w + column(k), once);
        });
        for_each_below<kWeightsAhead>([&](auto number) {
            constexpr int k = streamed(decltype(number)::value);
            ahead[decltype(number)::value] = load_with(w + column(k), often);
        });
        Place place;
        const auto leave = [&]() {
            __syncwarp();
            if (lane == 0) arrive(&written[place.slot]);
            place.advance();
        };
#pragma unroll 1
        for (int turn = 0; turn < turns; turn++) {
            P taken[kTaken * kChunkPacks];
            for_each_below<kTaken>([&](auto chunk) {
                wait(&arrived[place.slot], place.parity);
#pragma unroll
                for (int i = 0; i < kChunkPacks; i++) {
                    taken[decltype(chunk)::value * kChunkPacks + i] = ring[place.slot * kChunk + mine + i * kWarp];
                }
                leave();
            });
            // Once the row's statistics are known, all of it has arrived, so no other chunk is waited for.
            wait(&known[turn % 2], turn / 2 % 2);
            float4 sums = of_postmen[turn % 2][0];
#pragma unroll
            for (int i = 1; i < kPostmenWarps; i++) {
                sums.z += of_postmen[turn % 2][i].z;
                sums.w += of_postmen[turn % 2][i].w;
            }
            const Moments row = whole({sums.x, sums.y, 0.0f}, make_float2(sums.z, sums.w), kSliceCount, float(blocks));
            const float rstd = rsqrtf(__fdividef(row.squares, kSliceCount * blocks) + eps);
            const Statistics statistics = {row.mean, row.correction, rstd};
            P* const out = y + place_of(turn * kChunks) + mine;
            // The pack of that number of the row, from x.
            const auto result_of = [&](auto pack, const P& v) {
                constexpr int k = decltype(pack)::value;
                P scale;
                if constexpr (is_held(k)) {
                    scale = held[held_before(k)];
                } else {
                    constexpr int kNumber = k - held_before(k);
                    constexpr int kNext = streamed((kNumber + kWeightsAhead) % kStreamedWeights);
                    scale = ahead[kNumber % kWeightsAhead];
                    ahead[kNumber % kWeightsAhead] = load_with(w + column(kNext), often);
                }
                keep_packed(scale);
                keep_packed(shift[k]);
                return normalised(v, scale, shift[k], statistics);
            };
            for_each_below<kTaken * kChunkPacks>([&](auto pack) {
                constexpr int k = decltype(pack)::value;
                keep_packed(taken[k]);
                store_with(out + column(k), result_of(pack, taken[k]), once);
            });
            for_each_below<kChunks - kTaken>([&](auto chunk) {
                P* const at = ring + place.slot * kChunk + mine;
                P v[kChunkPacks];
#pragma unroll
                for (int i = 0; i < kChunkPacks; i++) v[i] = at[i * kWarp];
                for_each_below<kChunkPacks>([&](auto pack) {
                    constexpr int i = decltype(pack)::value, k = (kTaken + decltype(chunk)::value) * kChunkPacks + i;
                    at[i * kWarp] = result_of(std::integral_constant<int, k>{}, v[i]);
                });
                show_to_copies();
                leave();
            });
        }
    } else if (warp < kLoader) {
        leave_registers<kSummerRegisters>();
        const int summer = warp - kWriters;
        const P* const mine = ring + summer * kSummed * kWarp + lane;
        constexpr float kCount = kSummed * P::kValues;  // of a lane in a chunk
        // So many packs give the mean from which deviations are taken. One will do, and of 16-bit values a second pass
        // over all takes more registers than summers have. It costs three bits of the squares at most (Cauchy).
        constexpr int kFirst = P::kValues == 4 ? kSummed : 1;
        Place place;
#pragma unroll 1
        for (int turn = 0; turn < turns; turn++) {
            Moments sums;
#pragma unroll 1
            for (int before = 0; before < kChunks; before++) {
                wait(&arrived[place.slot], place.parity);
                P part[kSummed];
                float sum = 0.0f;
#pragma unroll
                for (int i = 0; i < kSummed; i++) {
                    part[i] = mine[place.slot * kChunk + i * kWarp];
                    if (i < kFirst) sum += sum_of(part[i]);
                }
                __syncwarp();
                if (lane == 0) arrive(&written[place.slot]);
                place.advance();
                const float mean = sum * (1.0f / (kFirst * P::kValues));
                float2 deviations = make_float2(0.0f, 0.0f);
#pragma unroll
                for (int i = 0; i < kSummed; i++) {
                    keep_packed(part[i]);
                    deviations = deviations + deviations_of(part[i], mean);
                }
                const float correction = deviations.x * (1.0f / kCount);
                const float squares = fmaf(-correction, deviations.x, deviations.y);
                if (before == 0) {
                    sums = {mean, correction, squares};
                    continue;
                }
                const float share = __fdividef(1.0f, float(before + 1));
                const float delta = (mean - sums.mean) + (correction - sums.correction);
                sums.squares = fmaf(delta * (kCount * before * share), delta, sums.squares + squares);
                sums.move_mean(delta * share);
            }
            constexpr float kLaneCount = kCount * kChunks;
            const float mean = __shfl_sync(kAllLanes, sums.mean, 0);
            const Moments first = {mean, __shfl_sync(kAllLanes, sums.correction, 0), 0.0f};
            sums = whole(first, sum_over_lanes(around(first, sums, kLaneCount)), kLaneCount, kWarp);
            if (lane == 0) {
                of_summers[turn % 2][summer] = sums;
                arrive(&summed[turn % 2]);
            }
        }
    } else {
        leave_registers<kMoverRegisters>();
        const int chunks = turns * kChunks;
        if (warp == kLoader && lane == 0) {
            const uint64_t once = evicted_first();
            Place place, earlier;
#pragma unroll 1
            for (int number = 0; number < chunks; number++) {
                if (number >= kLoadsUnderWay) {
                    wait(&arrived[earlier.slot], earlier.parity);
                    earlier.advance();
                }
                wait(&vacated[place.slot], place.parity ^ 1);
                bulk_load(ring + place.slot * kChunk, x + place_of(number), kChunkBytes, &arrived[place.slot], once);
                const int later = number + kChunksAhead;
                if (later < chunks) bulk_prefetch(x + place_of(later), kChunkBytes, once);
                place.advance();
            }
        } else if (warp == kStorer && lane == 0) {
            const uint64_t once = evicted_first();
            Place place;
            int oldest = 0, under_way = 0;
            const auto leave_oldest = [&]() {
                wait_for_stores<kStoresUnderWay>(--under_way);
                arrive(&vacated[oldest]);
                oldest = oldest + 1 < kSlots ? oldest + 1 : 0;
            };
#pragma unroll 1
            for (int number = 0; number < chunks; number++) {
                // No y to send yet: slots are vacated as soon as they can be. The loader never waits for the next y.
                while (under_way > 0 && !is_over(&written[place.slot], place.parity)) leave_oldest();
                wait(&written[place.slot], place.parity);
                if (number % kChunks < kTaken) {  // x is in the writers' registers
                    while (under_way > 0) leave_oldest();
                    arrive(&vacated[place.slot]);
                    place.advance();
                    oldest = place.slot;
                    continue;
                }
                bulk_store(y + place_of(number), ring + place.slot * kChunk, kChunkBytes, once);
                under_way++;
                if (under_way > kStoresUnderWay) leave_oldest();
                place.advance();
            }
            wait_for_stores<kStoresUnderWay>(0);
        } else if (warp >= kPostmen) {
            const int postman = warp - kPostmen;
#pragma unroll 1
            for (int turn = 0; turn < turns; turn++) {
                const int which = turn % 2;
                wait(&summed[which], turn / 2 % 2);
                constexpr float kSummerCount = kSliceCount / kSummers;
                Moments own = of_summers[which][0];
                float2 sums = make_float2(0.0f, own.squares);
#pragma unroll
                for (int i = 1; i < kSummers; i++) sums = sums + around(own, of_summers[which][i], kSummerCount);
                own = whole(own, sums, kSummerCount, kSummers);
                Mail* const box = mail + row_of(turn) * blocks;
                if (postman == 0 && lane == 0) send(box + block, own);
                // The block's own mean is the reference, as good as any other. A lane has three mails of 132 at most.
                // It looks at two at a time.
                sums = make_float2(0.0f, 0.0f);
                constexpr int kLanes = kPostmenWarps * kWarp;
                for (int i = postman * kWarp + lane; i < blocks; i += 2 * kLanes) {
                    const bool two = i + kLanes < blocks;
                    const int other = two ? i + kLanes : i;
                    Mail a = look(box + i), b = look(box + other);
                    while (!has_come(a) || !has_come(b)) {
                        __nanosleep(kNapNs);
                        a = look(box + i);
                        b = look(box + other);
                    }
                    sums = sums + around(own, {a.mean, a.correction, a.squares}, kSliceCount);
                    if (two) sums = sums + around(own, {b.mean, b.correction, b.squares}, kSliceCount);
                }
                sums = sum_over_lanes(sums);
                if (lane == 0) {
                    of_postmen[which][postman] = make_float4(own.mean, own.correction, sums.x, sums.y);
                    arrive(&known[which]);
                }
            }
        }
    }
#endif
}

// ------------------------------------------------------------------------------------------------------
// split_*: rows too long for a block. Three launches stand for two grid barriers: statistics of chunks,
// statistics of rows, output.

constexpr int kSplitThreads = 256, kSplitWarps = kSplitThreads / kWarp;
constexpr int kStatisticsLoads = 8;  // packs a thread holds; a chunk of a row is kSplitThreads times as many
constexpr int kOutputBlocks = 3;     // to share a multiprocessor
constexpr int kOutputRows = 4;       // of which a thread has packs on their way at the same time
// Packs of each row; a thread holds weight and bias for them as well, those of 16 bits twice the values.
template <typename T>
constexpr int kOutputLoads = sizeof(T) == 4 ? 2 : 1;

// Both passes go by strips, each as many columns as the blocks of the output that are resident together can
// hold; in a strip by rows, in a row by chunks. The output goes backwards. So it begins with what the
// statistics read last, in L2.
struct Order {
    unsigned rows, chunks, strip;  // of a strip: rows (or groups of rows); of a row, and of a strip: chunks

    __device__ __forceinline__ uint2 row_and_chunk(unsigned block) const {
        const unsigned before = block / (rows * strip) * strip, width = min(strip, chunks - before);
        const unsigned within = block - before * rows;
        return make_uint2(within / width, before + within % width);
    }
};

// A chunk -> its mean, what rounding took from that, and the squares of deviations from both.
template <typename T>
__global__ void __launch_bounds__(kSplitThreads)
split_statistics(const T* x, float4* of_chunks, int64_t packs, Order order) {
    constexpr int kSize = 16 / sizeof(T);
    constexpr int64_t kPacks = kSplitThreads * kStatisticsLoads;
    using P = Pack<T, kSize>;
    const uint2 place = order.row_and_chunk(blockIdx.x);
    const int64_t row = place.x, first = place.y * kPacks;
    const int here = static_cast<int>(min(packs - first, kPacks)) - threadIdx.x;
    const P* in = reinterpret_cast<const P*>(x) + row * packs + first + threadIdx.x;
    P kept[kStatisticsLoads];
#pragma unroll
    for (int k = 0; k < kStatisticsLoads; k++) {
        if (k * kSplitThreads < here) kept[k] = in[k * kSplitThreads];
    }
    __shared__ float of_warps[kSplitWarps];
    __shared__ float2 deviations_of_warps[kSplitWarps];
    const float count = float(min(packs - first, kPacks)) * kSize;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kStatisticsLoads; k++) {
        if (k * kSplitThreads < here) sum += sum_of(kept[k]);
    }
    const float mean = __fdividef(sum_over_row<kSplitWarps>(sum, of_warps), count);
    float2 sums = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int k = 0; k < kStatisticsLoads; k++) {
        keep_packed(kept[k]);
        if (k * kSplitThreads < here) sums = sums + deviations_of(kept[k], mean);
    }
    sums = sum_over_row<kSplitWarps>(sums, deviations_of_warps);
    if (threadIdx.x == 0) {
        const float correction = __fdividef(sums.x, count);
        const float squares = sums.y - sums.x * correction;
        of_chunks[row * order.chunks + place.y] = make_float4(mean, correction, squares, 0.0f);
    }
}

// All chunks of a row -> its statistics. In fp64, which costs nothing here.
template <int kSize>
__global__ void __launch_bounds__(kSplitThreads)
split_merge(const float4* of_chunks, float4* of_rows, int64_t packs, int chunks, double eps) {
    constexpr int64_t kPacks = kSplitThreads * kStatisticsLoads;
    __shared__ double means_of_warps[kSplitWarps], squares_of_warps[kSplitWarps];
    of_chunks += int64_t(blockIdx.x) * chunks;
    const double width = double(packs) * kSize;
    const auto count_of = [&](int c) { return double(min(kPacks, packs - c * kPacks)) * kSize; };
    double sum = 0.0, squares = 0.0;
    for (int c = threadIdx.x; c < chunks; c += kSplitThreads) {
        sum += count_of(c) * (double(of_chunks[c].x) + of_chunks[c].y);
    }
    const double mean = sum_over_row<kSplitWarps>(sum, means_of_warps) / width;
    for (int c = threadIdx.x; c < chunks; c += kSplitThreads) {
        const double delta = double(of_chunks[c].x) - mean + of_chunks[c].y;
        squares += of_chunks[c].z + count_of(c) * delta * delta;
    }
    const double variance = sum_over_row<kSplitWarps>(squares, squares_of_warps) / width;
    const float rounded = static_cast<float>(mean);
    if (threadIdx.x == 0) {
        of_rows[blockIdx.x] = make_float4(rounded, static_cast<float>(mean - rounded),
                                          static_cast<float>(rsqrt(variance + eps)), 0.0f);
    }
}

template <typename T, typename W>
__global__ void __launch_bounds__(kSplitThreads, kOutputBlocks)
split_output(const T* x, const W* weight, const W* bias, T* y, const float4* of_rows, int rows,
             int64_t packs, int rows_per_block, Order order) {
    constexpr int kSize = 16 / sizeof(T), kLoads = kOutputLoads<T>;
    using P = Pack<T, kSize>;
    const uint2 place = order.row_and_chunk(gridDim.x - 1 - blockIdx.x);
    const int first_row = place.x * rows_per_block, last_row = min(first_row + rows_per_block, rows) - 1;
    const int64_t column = int64_t(place.y) * kSplitThreads * kLoads + threadIdx.x;
    const int here = static_cast<int>(min(packs - column, int64_t(kSplitThreads) * kLoads));
    Pack<W, kSize> scale[kLoads], shift[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; k++) {
        if (k * kSplitThreads < here) {
            scale[k] = reinterpret_cast<const Pack<W, kSize>*>(weight)[column + k * kSplitThreads];
            shift[k] = reinterpret_cast<const Pack<W, kSize>*>(bias)[column + k * kSplitThreads];
        }
    }
    for (int row = last_row; row >= first_row; row -= kOutputRows) {
        const P* in = reinterpret_cast<const P*>(x) + row * packs + column;
        P* out = reinterpret_cast<P*>(y) + row * packs + column;
        P kept[kOutputRows][kLoads];
#pragma unroll
        for (int r = 0; r < kOutputRows; r++) {
#pragma unroll
            for (int k = 0; k < kLoads; k++) {
                if (row - r >= first_row && k * kSplitThreads < here) {
                    kept[r][k] = load_once(in - r * packs + k * kSplitThreads);
                }
            }
        }
#pragma unroll
        for (int r = 0; r < kOutputRows; r++) {
            if (row - r < first_row) break;
            const float4 of_row = of_rows[row - r];
            const Statistics statistics = {of_row.x, of_row.y, of_row.z};
#pragma unroll
            for (int k = 0; k < kLoads; k++) {
                if (k * kSplitThreads < here) {
                    store_once(out - r * packs + k * kSplitThreads,
                               normalised(kept[r][k], scale[k], shift[k], statistics));
                }
            }
        }
    }
}

// ------------------------------------------------------------------------------------------------------
// direct_rows: a block or a warp loads a row into registers and is done. Any width, any alignment.

constexpr int kDirectThreads = 512;

// Packs of kSize, of which a thread holds kLoads; with kLoads of 0 the row is read again for each pass. kEarly as in
// Share.
template <typename T, typename W, int kSize, int kLoads, bool kEarly, bool kWarpRow>
__global__ void __launch_bounds__(kDirectThreads)
direct_rows(const T* x, const W* weight, const W* bias, T* y, int64_t rows, int64_t width, float eps) {
    constexpr int kWarps = kWarpRow ? 1 : kDirectThreads / kWarp;
    const int64_t packs = width / kSize;
    __shared__ float of_warps[kWarps];
    __shared__ float2 deviations_of_warps[kWarps];
    wait_for_turn();
    for (int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y; row < rows;
         row += int64_t(gridDim.x) * blockDim.y) {
        const auto* in = reinterpret_cast<const Pack<T, kSize>*>(x + row * width);
        const auto* w = reinterpret_cast<const Pack<W, kSize>*>(weight);
        const auto* b = reinterpret_cast<const Pack<W, kSize>*>(bias);
        auto* out = reinterpret_cast<Pack<T, kSize>*>(y + row * width);
        Pack<T, kSize> kept[kLoads > 0 ? kLoads : 1];
        Pack<W, kSize> early_weight[kEarly ? kLoads : 1], early_bias[kEarly ? kLoads : 1];
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
            const int i = threadIdx.x + k * blockDim.x;
            if (i < packs) {
                kept[k] = in[i];
                if constexpr (kEarly) {
                    early_weight[k] = w[i];
                    early_bias[k] = b[i];
                }
            }
        }
        // `use` of a pack, its number, and which of the thread's it is.
        const auto for_each = [&](auto use) {
            if constexpr (kLoads > 0) {
#pragma unroll
                for (int k = 0; k < kLoads; k++) {
                    const int i = threadIdx.x + k * blockDim.x;
                    if (i < packs) use(kept[k], i, k);
                }
            } else {
                for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) use(in[i], i, 0);
            }
        };

        float sum = 0.0f;
        for_each([&](const Pack<T, kSize>& pack, int64_t, int) { sum += sum_of(pack); });
        const float mean = __fdividef(sum_over_row<kWarps>(sum, of_warps), width);
        float2 sums = make_float2(0.0f, 0.0f);
        for_each([&](const Pack<T, kSize>& pack, int64_t, int) { sums = sums + deviations_of(pack, mean); });
        const Statistics statistics =
            statistics_of(mean, sum_over_row<kWarps>(sums, deviations_of_warps), width, eps);
        for_each([&](const Pack<T, kSize>& pack, int64_t i, int k) {
            const Pack<W, kSize> scale = kEarly ? early_weight[k] : w[i], shift = kEarly ? early_bias[k] : b[i];
            out[i] = normalised(pack, scale, shift, statistics);
        });
    }
}

// ------------------------------------------------------------------------------------------------------
// fp64_rows: a block for each row, which it reads for each pass. For checks, not for speed.

__device__ double fp64_sum(double v) {
    __shared__ double sums[kSplitThreads];
    __syncthreads();  // the previous sum may still be being read
    sums[threadIdx.x] = v;
    __syncthreads();
    for (int half = kSplitThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    return sums[0];
}

__global__ void __launch_bounds__(kSplitThreads)
fp64_rows(const double* x, const double* weight, const double* bias, double* y, int64_t width, double eps) {
    x += blockIdx.x * width;
    y += blockIdx.x * width;
    double sum = 0.0, deviations = 0.0, squares = 0.0;
    for (int64_t i = threadIdx.x; i < width; i += kSplitThreads) sum += x[i] - x[0];
    const double mean = x[0] + fp64_sum(sum) / width;
    for (int64_t i = threadIdx.x; i < width; i += kSplitThreads) {
        deviations += x[i] - mean;
        squares += (x[i] - mean) * (x[i] - mean);
    }
    const double correction = fp64_sum(deviations) / width;  // what rounding had lost
    const double rstd = rsqrt(fmax(fp64_sum(squares) / width - correction * correction, 0.0) + eps);
    for (int64_t i = threadIdx.x; i < width; i += kSplitThreads) {
        y[i] = ((x[i] - mean) - correction) * rstd * weight[i] + bias[i];
    }
}

torch::Tensor fp64_layer_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                              torch::Tensor y, double eps) {
    const int64_t width = weight.numel(), rows = x.numel() / width;
    TORCH_CHECK(rows <= INT_MAX, "layer_norm: ", rows, " rows are more than a grid can have");
    fp64_rows<<<static_cast<unsigned>(rows), kSplitThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<double>(), weight.data_ptr<double>(), bias.data_ptr<double>(), y.data_ptr<double>(), width, eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

// ------------------------------------------------------------------------------------------------------
// From shape to kernel.

struct Call {
    const void *x, *weight, *bias;
    void* y;
    int64_t rows, width;
    float eps;
    c10::Device device;
    cudaStream_t stream;
};

// The threads that hold a row of `packs` with kLoads in each.
template <int kLoads>
constexpr int64_t threads_for(int64_t packs) {
    return (packs + kLoads * kWarp - 1) / (kLoads * kWarp) * kWarp;
}

// Whether all of these threads have all of their packs, but for the last one.
template <int kLoads>
constexpr bool fills(int64_t packs) {
    return (kLoads - 1) * threads_for<kLoads>(packs) <= packs;
}

template <typename T, typename W, int kThreads, int kBlocks, int kLoads, bool kEarly, bool kWarpRow = false>
void block(const Call& call) {
    constexpr unsigned kRows = kWarpRow ? kThreads / kWarp : 1;
    const int64_t packs = call.width * sizeof(T) / 16, blocks = (call.rows + kRows - 1) / kRows;
    TORCH_CHECK(blocks <= INT_MAX, "layer_norm: ", call.rows, " rows are more than a grid can have");
    const unsigned threads = threads_for<kLoads>(packs);
    launch_early(block_rows<T, W, kThreads, kBlocks, kLoads, kEarly, kWarpRow>, dim3(static_cast<unsigned>(blocks)), 1,
                 dim3(threads, kRows), call.stream, static_cast<const T*>(call.x),
                 static_cast<const W*>(call.weight), static_cast<const W*>(call.bias), static_cast<T*>(call.y),
                 call.rows, static_cast<int>(packs), call.eps);
}

// A lane's packs, where a warp has a row: at most, and where weight and bias are asked for with x.
template <typename T>
constexpr int kWarpRowLoads = sizeof(T) == 4 ? 6 : 4;
template <typename T>
constexpr int kEarlyLoads = sizeof(T) == 4 ? 6 : 3;  // more would spill registers

// A warp for each row: as many packs in a lane as the row needs.
template <typename T, typename W, int kLoads = 1>
void warp(const Call& call) {
    if constexpr (kLoads < kWarpRowLoads<T>) {
        if (threads_for<kLoads>(call.width * sizeof(T) / 16) > kWarp) return warp<T, W, kLoads + 1>(call);
    }
    constexpr bool kEarly = kLoads <= (sizeof(W) == sizeof(T) ? kEarlyLoads<T> : 2);
    block<T, W, 2 * kWarp, 16, kLoads, kEarly, true>(call);
}

// Whether clusters could take the rows; then they have. They need a row that falls into equal parts.
template <typename T, typename W, int kThreads, int kBlocks, int kLoads, bool kEarly>
bool cluster(const Call& call) {
    const auto kernel = cluster_rows<T, W, kThreads, kBlocks, kLoads, kEarly>;
    if (!is_hoppers(reinterpret_cast<const void*>(kernel))) return false;
    const int64_t packs = call.width * sizeof(T) / 16;
    for (unsigned blocks = kMostBlocks; blocks > 1; blocks /= 2) {
        const int64_t part = packs / blocks;
        if (packs % blocks != 0 || part > kThreads * kLoads || !fills<kLoads>(part)) continue;
        if (call.rows * blocks > INT_MAX) return false;
        launch_early(kernel, dim3(static_cast<unsigned>(call.rows * blocks)), blocks,
                     dim3(static_cast<unsigned>(threads_for<kLoads>(part))), call.stream,
                     static_cast<const T*>(call.x), static_cast<const W*>(call.weight),
                     static_cast<const W*>(call.bias), static_cast<T*>(call.y), static_cast<int>(part), call.eps);
        return true;
    }
    return false;
}

template <typename T, typename W, int kSize, int kLoads, bool kEarly, bool kWarpRow>
void direct(const Call& call, unsigned threads, unsigned rows_per_block) {
    const int64_t blocks = (call.rows + rows_per_block - 1) / rows_per_block;
    launch_early(direct_rows<T, W, kSize, kLoads, kEarly, kWarpRow>, dim3(std::min<int64_t>(blocks, INT_MAX)), 1,
                 dim3(threads, rows_per_block), call.stream, static_cast<const T*>(call.x),
                 static_cast<const W*>(call.weight), static_cast<const W*>(call.bias), static_cast<T*>(call.y),
                 call.rows, call.width, call.eps);
}

template <typename T, typename W>
void split(const Call& call) {
    constexpr int kSize = 16 / sizeof(T);
    const int64_t packs = call.width / kSize;
    const auto number_of = [](int64_t all, int64_t size) { return (all + size - 1) / size; };
    constexpr int64_t kChunk = kSplitThreads * kStatisticsLoads;
    constexpr int64_t kOutputChunk = kSplitThreads * kOutputLoads<T>;
    const int64_t chunks = number_of(packs, kChunk), output_chunks = number_of(packs, kOutputChunk);
    TORCH_CHECK(call.rows * output_chunks <= INT_MAX, "layer_norm: x has ", call.rows * output_chunks,
                " chunks, more than a grid can have");
    int multiprocessors = 0;
    C10_CUDA_CHECK(
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, call.device.index()));
    const int64_t resident = int64_t(multiprocessors) * kOutputBlocks;
    const int64_t strip = number_of(resident * kOutputChunk, kChunk);
    const int64_t most_groups = std::min(std::max<int64_t>(resident / output_chunks, 1), call.rows);
    const int64_t rows_per_block = number_of(call.rows, most_groups);
    const int64_t row_groups = number_of(call.rows, rows_per_block);
    const auto order = [](int64_t rows, int64_t of_row, int64_t of_strip) {
        return Order{unsigned(rows), unsigned(of_row), unsigned(std::min(of_strip, of_row))};
    };
    const auto floats = torch::device(call.device).dtype(torch::kFloat);
    const auto scratch = torch::empty({4 * call.rows * (chunks + 1)}, floats);
    float4* of_rows = reinterpret_cast<float4*>(scratch.template data_ptr<float>());
    float4* of_chunks = of_rows + call.rows;

    split_statistics<T><<<static_cast<unsigned>(call.rows * chunks), kSplitThreads, 0, call.stream>>>(
        static_cast<const T*>(call.x), of_chunks, packs, order(call.rows, chunks, strip));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    split_merge<kSize><<<static_cast<unsigned>(call.rows), kSplitThreads, 0, call.stream>>>(
        of_chunks, of_rows, packs, static_cast<int>(chunks), call.eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    split_output<T, W>
        <<<static_cast<unsigned>(row_groups * output_chunks), kSplitThreads, 0, call.stream>>>(
            static_cast<const T*>(call.x), static_cast<const W*>(call.weight),
            static_cast<const W*>(call.bias), static_cast<T*>(call.y), of_rows, static_cast<int>(call.rows),
            packs, static_cast<int>(rows_per_block),
            order(row_groups, output_chunks, strip * kChunk / kOutputChunk));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// How many blocks of ring_rows can run at the same time, so that they may wait for each other; 0 where they cannot be.
template <typename P>
int64_t count_ring_blocks(int device) {
    const auto attribute = [&](cudaDeviceAttr which) {
        int value = 0;
        C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
        return value;
    };
    const auto kernel = ring_rows<P>;
    cudaFuncAttributes compiled = {};
    C10_CUDA_CHECK(cudaFuncGetAttributes(&compiled, kernel));
    if (compiled.ptxVersion < 90 || attribute(cudaDevAttrComputeCapabilityMajor) < 9 ||
        !attribute(cudaDevAttrCooperativeLaunch) ||
        attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) < kRingShared + int(compiled.sharedSizeBytes)) {
        return 0;
    }
    C10_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kRingShared));
    int together = 0;
    C10_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&together, kernel, kRingThreads, kRingShared));
    return int64_t(together) * attribute(cudaDevAttrMultiProcessorCount);
}

// The same, asked once for a device, since each call wants to know. `static`: of two such files each asks for its own
// kernel.
template <typename P>
static int64_t ring_blocks(int device) {
    static std::atomic<int64_t> known[64] = {};  // one more than the answer, of devices that were asked for
    if (device >= 64) return count_ring_blocks<P>(device);
    std::atomic<int64_t>& answer = known[device];
    if (!answer) answer = count_ring_blocks<P>(device) + 1;
    return answer - 1;
}

constexpr int64_t kManyTurns = 4;  // rows of a team: nothing hides the first one's loads and the last one's stores
constexpr int64_t kLeastUsedPercent = 90;  // so many of all places in all turns have a row

// Whether the ring could take the rows; then it has. With `many` only if they are many, and leave few places idle.
template <typename P>
bool ring(const Call& call, bool many) {
    const int64_t packs = call.width / P::kValues, across = packs / kSlice;
    if (packs % kSlice != 0 || call.rows > INT_MAX / kChunks) return false;
    const int64_t resident = ring_blocks<P>(call.device.index());
    const int64_t teams = std::min(call.rows, resident / across);
    if (teams == 0) return false;
    const int64_t turns = (call.rows + teams - 1) / teams;
    if (many && (turns < kManyTurns || call.rows * across * 100 < turns * resident * kLeastUsedPercent)) return false;
    const auto mail = torch::empty({call.rows * across * int64_t(sizeof(Mail))},
                                   torch::device(call.device).dtype(torch::kByte));
    auto* boxes = reinterpret_cast<Mail*>(mail.data_ptr<uint8_t>());
    C10_CUDA_CHECK(cudaMemsetAsync(boxes, 0xff, mail.numel(), call.stream));
    const auto* x = static_cast<const P*>(call.x);
    const auto* weight = static_cast<const P*>(call.weight);
    const auto* bias = static_cast<const P*>(call.bias);
    auto* y = static_cast<P*>(call.y);
    int rows = static_cast<int>(call.rows), blocks = static_cast<int>(across);
    float eps = call.eps;
    void* arguments[] = {&x, &weight, &bias, &y, &boxes, &rows, &blocks, &eps};
    const dim3 grid(static_cast<unsigned>(teams * across));
    C10_CUDA_CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&ring_rows<P>), grid, dim3(kRingThreads),
                                               arguments, kRingShared, call.stream));
    return true;
}

constexpr int64_t kFewPacks = 128 * 1024;  // of x: its rows leave a GPU idle, and none hides what another waits for
constexpr int64_t kClusterPacks = 16 * 1024;  // of an fp32 row that clusters take where the ring leaves places idle

// The one place that chooses. The arguments of `block` and `cluster`: the most threads of a block, how many such blocks
// share a multiprocessor's registers, 16-byte packs in a thread's registers, and whether weight and bias have room
// there, too. 16-bit values take more registers once they are converted.
template <typename T, typename W>
void choose(const Call& call, bool aligned) {
    constexpr int kSize = 16 / sizeof(T);
    const bool few = call.rows * call.width <= kFewPacks * kSize;
    if (aligned && call.width % kSize == 0) {
        const int64_t packs = call.width / kSize;
        using P = Pack<T, kSize>;
        constexpr bool kWide = sizeof(T) == 4;
        if (packs <= (few ? kEarlyLoads<T> : kWarpRowLoads<T>) * kWarp) return warp<T, W>(call);
        if (packs <= 256 || !fills<4>(packs)) return block<T, W, 256, kWide ? 6 : 3, 2, true>(call);
        if (few && packs <= 1024) return block<T, W, 512, 1, 2, true>(call);
        if (few && cluster<T, W, 256, 1, 8, true>(call)) return;
        if (packs <= (kWide ? 1024 : 2048) || !fills<8>(packs)) return block<T, W, 512, kWide ? 3 : 2, 4, false>(call);
        if constexpr (kWide) {
            if (packs <= 2048) return block<T, W, 256, 4, 8, false>(call);
        }
        if (packs <= 4096) return block<T, W, 512, 2, 8, false>(call);
        if constexpr (std::is_same_v<T, W>) {
            if (ring<P>(call, !kWide || packs <= kClusterPacks)) return;
        }
        if (cluster<T, W, 512, 2, 8, false>(call)) return;
        return split<T, W>(call);
    }
    const auto threads = [&](int64_t loads) {
        return static_cast<unsigned>((call.width + loads * kWarp - 1) / (loads * kWarp) * kWarp);
    };
    if (call.width <= 4 * kWarp) return direct<T, W, 1, 4, true, true>(call, kWarp, 4);
    if (few && call.width <= 2 * kDirectThreads) return direct<T, W, 1, 2, true, false>(call, threads(2), 1);
    if (call.width <= 8 * kDirectThreads) return direct<T, W, 1, 8, false, false>(call, threads(8), 1);
    return direct<T, W, 1, 0, false, false>(call, kDirectThreads, 1);
}

// Reached for each call, so nothing here goes through torch's dispatcher unless it must.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
    TORCH_CHECK(x.is_cuda(), "layer_norm: x must be a CUDA tensor, got one on ", x.device());
    TORCH_CHECK(weight.device() == x.device() && bias.device() == x.device(), "layer_norm: x is on ",
                x.device(), " but weight is on ", weight.device(), " and bias on ", bias.device());
    TORCH_CHECK(weight.dim() >= 1 && x.dim() >= weight.dim() &&
                    x.sizes().slice(x.dim() - weight.dim()) == weight.sizes(),
                "layer_norm: the last dimensions of x ", x.sizes(), " must be normalized_shape ",
                weight.sizes());
    TORCH_CHECK(bias.sizes() == weight.sizes(), "layer_norm: bias has shape ", bias.sizes(),
                " but weight has shape ", weight.sizes());
    const auto type = x.scalar_type(), parameter_type = weight.scalar_type();
    TORCH_CHECK(type == torch::kFloat || type == torch::kHalf || type == torch::kBFloat16 || type == torch::kDouble,
                "layer_norm: x must be float32, float16, bfloat16 or float64, got ", type);
    TORCH_CHECK(parameter_type == type || (parameter_type == torch::kFloat && type != torch::kDouble),
                "layer_norm: weight must be float32 or ", type, " like x, got ", parameter_type);
    TORCH_CHECK(bias.scalar_type() == parameter_type, "layer_norm: bias must be ", parameter_type,
                " like weight, got ", bias.scalar_type());

    const c10::cuda::CUDAGuard guard(x.device());
    if (!x.is_contiguous() || !weight.is_contiguous() || !bias.is_contiguous()) {
        return layer_norm(x.contiguous(), weight.contiguous(), bias.contiguous(), eps);
    }
    at::Tensor y = at::detail::empty_cuda(x.sizes(), type, x.device(), std::nullopt);
    if (y.numel() == 0) return y;  // a launch of no blocks is an error
    if (type == torch::kDouble) return fp64_layer_norm(x, weight, bias, y, eps);

    const int64_t width = weight.numel();
    Call call = {x.data_ptr(), weight.data_ptr(), bias.data_ptr(), y.data_ptr(), x.numel() / width, width,
                 static_cast<float>(eps), x.device()};
    call.stream = c10::cuda::getCurrentCUDAStream();
    const auto bits = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.weight) |
                      reinterpret_cast<uintptr_t>(call.bias) | reinterpret_cast<uintptr_t>(call.y);
    const bool aligned = bits % 16 == 0;
    if (type == torch::kFloat) {
        choose<float, float>(call, aligned);
    } else if (type == torch::kHalf) {
        parameter_type == type ? choose<__half, __half>(call, aligned) : choose<__half, float>(call, aligned);
    } else {
        parameter_type == type ? choose<__nv_bfloat16, __nv_bfloat16>(call, aligned)
                               : choose<__nv_bfloat16, float>(call, aligned);
    }
    return y;
}
"""

# Host code is not optimised unless it is asked for. sm_90a by name: torch asks for the GPU's plain architecture, which
# lacks setmaxnreg. Other GPUs run what is for sm_80, or compile it when it is loaded.
layer_norm = load_inline(
    name="layernorm_speed_of_light",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    extra_cflags=["-O2"],
    extra_cuda_cflags=[
        "-O2",
        "--threads=2",
        "-gencode=arch=compute_90a,code=sm_90a",
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_80,code=compute_80",
    ],
).layer_norm


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        parameters = self._parameters  # skips the search that self.weight would make
        return layer_norm(x, parameters["weight"], parameters["bias"], self.eps)
