"""LayerNorm with as little traffic as possible: fp32, fp16 and bf16, statistics in fp32. fp64 is right, and not fast.

Rows up to 16,384 fp32 elements (32,768 of 16 bits) live in the registers of a block or a warp: x is read
once, y is written once. All loads of a thread are on their way before the first is used, and few registers a
thread leave room for many rows on a multiprocessor, so that some load while others sum or store.

Longer fp32 rows are spread over a team of blocks, one for each multiprocessor, that holds two rows on chip: x
is read once, while one row is written the next is summed and the row after it arrives, and statistics travel
between blocks meanwhile. It needs rows of whole slices and sm_90's bulk copies.

What else is long is split over blocks, and x is read twice. A block computes the output of a chunk of columns
for all rows, so that weight and bias are read once: for each row they would move more bytes than x itself.
Four rows are on their way at a time. The output is computed in the reverse order of the statistics, because
their end is what L2 still holds, and what will not be used again is marked so.

Other widths and alignments go element by element.

Numerics: the mean of what a block or a warp holds, then deviations from it, their squares, and their own mean:
what rounding took from the first. Neither a large mean nor an outlier costs digits. Parts of a long row are
joined by the formula of Chan, Golub and LeVeque (1983).

Small inputs cost a call, an allocation and a launch. The function is given to Python without pybind11's
conversion of arguments, which costs more than all checks.

Bytes moved: short rows x and y once, 8192x4096 in fp32 268 MB, 63 us at 4.26 TB/s. The (16, 64, 256, 256)
case 570 MB, 134 us; weight comes from L2 for each row but the first.
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
#include <algorithm>
#include <climits>
#include <utility>

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

// ------------------------------------------------------------------------------------------------------
// Packs: several values in one load or store, of 16 bytes at most.

constexpr int alignment(int bytes) { return bytes >= 16 ? 16 : bytes; }

template <typename T, int kSize>
struct alignas(alignment(kSize * sizeof(T))) Pack {
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

__device__ __forceinline__ void wait_for_turn() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// For kernels that begin with wait_for_turn.
template <typename... Parameters, typename... Arguments>
void launch_early(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, cudaStream_t stream,
                  Arguments... arguments) {
    int device = 0, major = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = major >= 9 ? 1 : 0;
    C10_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

// ------------------------------------------------------------------------------------------------------
// block_rows: a block or a warp has a row in registers. All of its loads are on their way before the first
// is used, and many rows share a multiprocessor, so that some load while others sum or store.

template <typename T, typename W, int kThreads, int kBlocks, int kLoads, bool kWarpRow>
__global__ void __launch_bounds__(kThreads, kBlocks)
block_rows(const T* x, const W* weight, const W* bias, T* y, int64_t rows, int packs, float eps) {
    constexpr int kSize = 16 / sizeof(T), kWarps = kWarpRow ? 1 : kThreads / kWarp;
    using P = Pack<T, kSize>;
    const int stride = kWarpRow ? kWarp : blockDim.x;
    const int64_t row = kWarpRow ? int64_t(blockIdx.x) * blockDim.y + threadIdx.y : blockIdx.x;
    wait_for_turn();
    if (kWarpRow && row >= rows) return;
    const P* in = reinterpret_cast<const P*>(x) + row * packs + threadIdx.x;
    P* out = reinterpret_cast<P*>(y) + row * packs + threadIdx.x;
    const auto* w = reinterpret_cast<const Pack<W, kSize>*>(weight) + threadIdx.x;
    const auto* b = reinterpret_cast<const Pack<W, kSize>*>(bias) + threadIdx.x;
    // Only the last pack of a thread may lie behind the row: so few threads are launched (`fills`). It loads the
    // row's last pack then. A load under a condition would let the compiler use the others first.
    const int left = packs - 1 - int(threadIdx.x);
    const auto here = [&](int k) { return k < kLoads - 1 || k * stride <= left; };
    const auto at = [&](int k) { return k < kLoads - 1 ? k * stride : min(k * stride, left); };

    P kept[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; k++) kept[k] = in[at(k)];
    __shared__ float of_warps[kWarps];
    __shared__ float2 deviations_of_warps[kWarps];
    const float width = float(packs) * kSize;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kLoads; k++) {
        const float more = sum_of(kept[k]);
        sum += here(k) ? more : 0.0f;
    }
    const float mean = __fdividef(sum_over_row<kWarps>(sum, of_warps), width);
    float2 sums = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int k = 0; k < kLoads; k++) {
        keep_packed(kept[k]);
        const float2 more = deviations_of(kept[k], mean);
        sums = sums + (here(k) ? more : make_float2(0.0f, 0.0f));
    }
    const Statistics statistics =
        statistics_of(mean, sum_over_row<kWarps>(sums, deviations_of_warps), width, eps);
#pragma unroll
    for (int k = 0; k < kLoads; k++) {
        keep_packed(kept[k]);
        const Pack<W, kSize> scale = w[at(k)], shift = b[at(k)];
        if (here(k)) out[k * stride] = normalised(kept[k], scale, shift, statistics);
    }
}

// ------------------------------------------------------------------------------------------------------
// team_rows: each row spread over a team of blocks, one for each multiprocessor, with two rows on chip, so that
// x is read once. While a row is written, each place that it leaves is filled with the row after the next, and
// the next, which has arrived, is summed. Its statistics are on their way when half of the row is written, so
// that hardly anyone waits for them. Bias stays in registers; weight comes from L2, a little ahead.

constexpr int kTeamThreads = 512, kTeamWarps = kTeamThreads / kWarp;
constexpr int kChunks = 8, kChunkPacks = 2;  // of a row in a lane; but for the first chunk in shared memory
constexpr int kLanePacks = kChunks * kChunkPacks;
constexpr int kFolded = 4;        // chunks of the next row that are summed with each that is written
constexpr int kWeightsAhead = 2;  // packs of weight on their way
constexpr int kSlice = kTeamThreads * kLanePacks;  // packs of a row in a block
constexpr int kWarpPacks = (kLanePacks - kChunkPacks) * kWarp;  // of a row, of a warp, in shared memory
constexpr int kTeamShared = 2 * kTeamWarps * kWarpPacks * 16;
constexpr int kTeamStaticShared = 3072;  // at most: barriers, and what sums need
constexpr int kTeamRows = 4;  // a team of fewer rows only fills and drains

// Statistics of a block's part of a row, for the others, in two words. Memory is all ones before.
constexpr unsigned long long kNoMail = ~0ull;

__device__ __forceinline__ unsigned long long mail_word(float a, float b) {
    a = a == a ? a : __int_as_float(0x7fc00000);  // a NaN may be all ones
    b = b == b ? b : __int_as_float(0x7fc00000);
    return static_cast<unsigned long long>(__float_as_uint(b)) << 32 | __float_as_uint(a);
}

__device__ __forceinline__ float2 wait_for_mail(const unsigned long long* p) {
    unsigned long long v = *reinterpret_cast<const volatile unsigned long long*>(p);
    while (v == kNoMail) {
        __nanosleep(64);
        v = *reinterpret_cast<const volatile unsigned long long*>(p);
    }
    return make_float2(__uint_as_float(static_cast<unsigned>(v)), __uint_as_float(static_cast<unsigned>(v >> 32)));
}

// Of so many values: their mean, what rounding took from it, and the squares of deviations from both.
struct Moments {
    float mean, correction, squares;

    // The sum of two floats and its rounding error (Knuth).
    __device__ __forceinline__ void move_mean(float by) {
        const float moved = mean + by, back = moved - mean;
        correction += (mean - (moved - back)) + (by - back);
        mean = moved;
    }
};

// Both of `count` values.
__device__ __forceinline__ Moments joined(Moments a, const Moments& b, float count) {
    const float delta = (b.mean - a.mean) + (b.correction - a.correction);
    a.squares = fmaf(delta * delta, 0.5f * count, a.squares + b.squares);
    a.move_mean(0.5f * delta);
    return a;
}

__device__ __forceinline__ Moments shuffled(const Moments& v, int mask) {
    return {shuffled(v.mean, mask), shuffled(v.correction, mask), shuffled(v.squares, mask)};
}

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// x is read once and weight for every row: what L2 should let go of first, and last.
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

__device__ __forceinline__ Pack<float, 4> load_with(const Pack<float, 4>* p, uint64_t policy) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p), "l"(policy));
    return reinterpret_cast<const Pack<float, 4>&>(v);
}

template <typename F, int... kAll>
__device__ __forceinline__ void for_each_of(std::integer_sequence<int, kAll...>, const F& use) {
    (use(std::integral_constant<int, kAll>{}), ...);
}

// `use` of each chunk's number, a constant, so that registers can be indexed with it.
template <typename F>
__device__ __forceinline__ void for_each_chunk(const F& use) {
    for_each_of(std::make_integer_sequence<int, kChunks>{}, use);
}

__global__ void __launch_bounds__(kTeamThreads, 1)
team_rows(const Pack<float, 4>* x, const Pack<float, 4>* weight, const Pack<float, 4>* bias, Pack<float, 4>* y,
          unsigned long long* mail, int rows, int64_t packs, int teams, float eps) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // bulk copies; nothing launches this elsewhere
    using P = Pack<float, 4>;
    extern __shared__ uint4 team_memory[];
    __shared__ uint64_t arrived[2][kTeamWarps][kChunks];
    __shared__ Moments of_warps[2][kTeamWarps];
    __shared__ Statistics of_rows[2];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    const int blocks = gridDim.x / teams, block = blockIdx.x % blocks, team = blockIdx.x / blocks;
    const int64_t first = int64_t(block) * kSlice + warp * kLanePacks * kWarp;  // of the warp
    P* const mine = reinterpret_cast<P*>(team_memory) + warp * 2 * kWarpPacks;
    const uint64_t once = evicted_first(), often = evicted_last();
    if (lane < 2 * kChunks) {
        const unsigned barrier = shared_address(&arrived[lane / kChunks][warp][lane % kChunks]);
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(1) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
    }
    __syncwarp();

    // The rows of a team, `turn` by `turn`, are even and odd ones by turns: they have places of their own.
    const int turns = (rows - team + teams - 1) / teams;
    const auto row_of = [&](int turn) { return team + int64_t(turn) * teams; };
    P held[2][kChunkPacks], shift[kLanePacks], scale[kWeightsAhead];
    Moments sums;

    // A chunk sets out.
    const auto fetch = [&](auto parity, auto chunk, int turn) {
        constexpr int kParity = decltype(parity)::value, kChunk = decltype(chunk)::value;
        const P* from = x + row_of(turn) * packs + first + kChunk * kChunkPacks * kWarp;
        if constexpr (kChunk == 0) {
#pragma unroll
            for (int i = 0; i < kChunkPacks; i++) held[kParity][i] = load_with(from + i * kWarp + lane, once);
        } else {
            __syncwarp();  // all lanes have read what is overwritten
            if (lane == 0) {
                const unsigned barrier = shared_address(&arrived[kParity][warp][kChunk]);
                const unsigned to = shared_address(mine + kParity * kWarpPacks + (kChunk - 1) * kChunkPacks * kWarp);
                const unsigned bytes = kChunkPacks * kWarp * 16;
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                             : : "r"(barrier), "r"(bytes) : "memory");
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                             "[%0], [%1], %2, [%3], %4;"
                             : : "r"(to), "l"(from), "r"(bytes), "r"(barrier), "l"(once) : "memory");
            }
        }
    };
    const auto wait_for = [&](auto parity, auto chunk, int turn) {
        const unsigned barrier = shared_address(&arrived[decltype(parity)::value][warp][decltype(chunk)::value]);
        unsigned done = 0;
        while (!done) {
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                         : "=r"(done) : "r"(barrier), "r"(turn / 2 % 2) : "memory");
        }
    };
    const auto pack_of = [&](auto parity, auto chunk, int i) {
        constexpr int kParity = decltype(parity)::value, kChunk = decltype(chunk)::value;
        if constexpr (kChunk == 0) {
            return held[kParity][i];
        } else {
            return mine[kParity * kWarpPacks + ((kChunk - 1) * kChunkPacks + i) * kWarp + lane];
        }
    };
    // A chunk joins the moments of its lane; the first begins them anew. All chunks have one size.
    const auto fold = [&](auto parity, auto chunk, int turn) {
        constexpr int kBefore = decltype(chunk)::value;
        constexpr float kCount = kChunkPacks * 4;
        if constexpr (kBefore > 0) wait_for(parity, chunk, turn);
        P part[kChunkPacks];
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < kChunkPacks; i++) {
            part[i] = pack_of(parity, chunk, i);
            sum += sum_of(part[i]);
        }
        const float mean = sum * (1.0f / kCount);
        float2 deviations = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int i = 0; i < kChunkPacks; i++) deviations = deviations + deviations_of(part[i], mean);
        if constexpr (kBefore == 0) {
            sums = {mean, 0.0f, deviations.y};
        } else {
            const float delta = (mean - sums.mean) - sums.correction;
            sums.squares = fmaf(delta * delta, kCount * kBefore / (kBefore + 1), sums.squares + deviations.y);
            sums.move_mean(delta * (1.0f / (kBefore + 1)));
        }
    };
    const auto send = [&](auto parity, int turn) {
        auto& of_parity = of_warps[decltype(parity)::value];
        float count = kLanePacks * 4;
#pragma unroll
        for (int mask = 1; mask < kWarp; mask *= 2, count *= 2) sums = joined(sums, shuffled(sums, mask), count);
        if (lane == 0) of_parity[warp] = sums;
        __syncthreads();
        if (warp > 0) return;
        sums = of_parity[lane % kTeamWarps];
#pragma unroll
        for (int mask = 1; mask < kTeamWarps; mask *= 2, count *= 2) sums = joined(sums, shuffled(sums, mask), count);
        if (lane == 0) {
            volatile unsigned long long* to = mail + (row_of(turn) * blocks + block) * 2;
            to[0] = mail_word(sums.mean, sums.correction);
            to[1] = mail_word(sums.squares, 0.0f);
        }
    };
    // Slices have one size, so beside their squares only the spread of their means around the first's counts.
    const auto receive = [&](auto parity, int turn) {
        constexpr float kCount = float(kSlice) * 4;
        Statistics& of_row = of_rows[decltype(parity)::value];
        if (warp == 0) {
            const unsigned long long* from = mail + row_of(turn) * blocks * 2;
            const float2 reference = wait_for_mail(from);
            float2 spread = make_float2(0.0f, 0.0f);
            for (int i = lane; i < blocks; i += kWarp) {
                const float2 slice = wait_for_mail(from + 2 * i);
                const float delta = (slice.x - reference.x) + (slice.y - reference.y);
                spread.x += delta;
                spread.y += fmaf(delta * delta, kCount, wait_for_mail(from + 2 * i + 1).x);
            }
            spread = sum_over_lanes(spread);
            const float share = spread.x / blocks;
            const float variance = fmaxf(spread.y - kCount * spread.x * share, 0.0f) / (kCount * blocks);
            const float rstd = spread.y == spread.y ? rsqrtf(variance + eps) : spread.y;  // fmaxf would hide a NaN
            if (lane == 0) of_row = {reference.x, reference.y + share, rstd};
        }
        __syncthreads();
        return of_row;
    };
    const P* const w = weight + first + lane;
    const auto write = [&](auto parity, auto other, int turn) {
        const Statistics statistics = receive(parity, turn);
        P* out = y + row_of(turn) * packs + first + lane;
        for_each_chunk([&](auto chunk) {
            constexpr int kChunk = decltype(chunk)::value;
#pragma unroll
            for (int i = 0; i < kChunkPacks; i++) {
                const int k = kChunk * kChunkPacks + i;
                P& of_pack = scale[k % kWeightsAhead];
                store_once(out + k * kWarp, normalised(pack_of(parity, chunk, i), of_pack, shift[k], statistics));
                of_pack = load_with(w + (k + kWeightsAhead) % kLanePacks * kWarp, often);
            }
            if (turn + 2 < turns) fetch(parity, chunk, turn + 2);
            if constexpr (kChunk * kFolded < kChunks) {
                if (turn + 1 >= turns) return;
                for_each_chunk([&](auto next) {
                    if constexpr (decltype(next)::value / kFolded == kChunk) fold(other, next, turn + 1);
                });
                if constexpr ((kChunk + 1) * kFolded == kChunks) send(other, turn + 1);
            }
        });
    };

    const std::integral_constant<int, 0> even;
    const std::integral_constant<int, 1> odd;
    for_each_chunk([&](auto chunk) { fetch(even, chunk, 0); });
    if (turns > 1) for_each_chunk([&](auto chunk) { fetch(odd, chunk, 1); });
#pragma unroll
    for (int k = 0; k < kWeightsAhead; k++) scale[k] = load_with(w + k * kWarp, often);
#pragma unroll
    for (int k = 0; k < kLanePacks; k++) shift[k] = load_with(bias + first + lane + k * kWarp, once);
    for_each_chunk([&](auto chunk) { fold(even, chunk, 0); });
    send(even, 0);
    for (int turn = 0; turn < turns; turn += 2) {
        write(even, odd, turn);
        if (turn + 1 < turns) write(odd, even, turn + 1);
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

// Packs of kSize, of which a thread holds kLoads; with kLoads of 0 the row is read again for each pass.
template <typename T, typename W, int kSize, int kLoads, bool kWarpRow>
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
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
            const int i = threadIdx.x + k * blockDim.x;
            if (i < packs) kept[k] = in[i];
        }
        const auto for_each = [&](auto use) {
            if constexpr (kLoads > 0) {
#pragma unroll
                for (int k = 0; k < kLoads; k++) {
                    const int i = threadIdx.x + k * blockDim.x;
                    if (i < packs) use(kept[k], i);
                }
            } else {
                for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) use(in[i], i);
            }
        };

        float sum = 0.0f;
        for_each([&](const Pack<T, kSize>& pack, int64_t) { sum += sum_of(pack); });
        const float mean = __fdividef(sum_over_row<kWarps>(sum, of_warps), width);
        float2 sums = make_float2(0.0f, 0.0f);
        for_each([&](const Pack<T, kSize>& pack, int64_t) { sums = sums + deviations_of(pack, mean); });
        const Statistics statistics =
            statistics_of(mean, sum_over_row<kWarps>(sums, deviations_of_warps), width, eps);
        for_each([&](const Pack<T, kSize>& pack, int64_t i) {
            const Pack<W, kSize> scale = w[i], shift = b[i];
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

template <typename T, typename W, int kThreads, int kBlocks, int kLoads, bool kWarpRow = false>
void block(const Call& call) {
    constexpr unsigned kRows = kWarpRow ? kThreads / kWarp : 1;
    const int64_t packs = call.width * sizeof(T) / 16, blocks = (call.rows + kRows - 1) / kRows;
    TORCH_CHECK(blocks <= INT_MAX, "layer_norm: ", call.rows, " rows are more than a grid can have");
    const unsigned threads = threads_for<kLoads>(packs);
    launch_early(block_rows<T, W, kThreads, kBlocks, kLoads, kWarpRow>, dim3(static_cast<unsigned>(blocks)),
                 dim3(threads, kRows), call.stream, static_cast<const T*>(call.x),
                 static_cast<const W*>(call.weight), static_cast<const W*>(call.bias), static_cast<T*>(call.y),
                 call.rows, static_cast<int>(packs), call.eps);
}

constexpr int kWarpRowLoads = 6;

// A warp for each row: as many packs in a lane as the row needs.
template <typename T, typename W, int kLoads = 1>
void warp(const Call& call) {
    if constexpr (kLoads < kWarpRowLoads) {
        if (threads_for<kLoads>(call.width * sizeof(T) / 16) > kWarp) return warp<T, W, kLoads + 1>(call);
    }
    block<T, W, 2 * kWarp, kLoads <= 4 || sizeof(T) == 4 ? 16 : 10, kLoads, true>(call);
}

template <typename T, typename W, int kSize, int kLoads, bool kWarpRow>
void direct(const Call& call, unsigned threads, unsigned rows_per_block) {
    const int64_t blocks = (call.rows + rows_per_block - 1) / rows_per_block;
    launch_early(direct_rows<T, W, kSize, kLoads, kWarpRow>, dim3(std::min<int64_t>(blocks, INT_MAX)),
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

// How many blocks of team_rows can run at the same time, so that they may wait for each other; 0 where they cannot be.
int64_t team_blocks(int device) {
    const auto attribute = [&](cudaDeviceAttr which) {
        int value = 0;
        C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
        return value;
    };
    if (attribute(cudaDevAttrComputeCapabilityMajor) < 9 || !attribute(cudaDevAttrCooperativeLaunch) ||
        attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) < kTeamShared + kTeamStaticShared) {
        return 0;
    }
    C10_CUDA_CHECK(cudaFuncSetAttribute(team_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, kTeamShared));
    int together = 0;
    C10_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&together, team_rows, kTeamThreads, kTeamShared));
    return int64_t(together) * attribute(cudaDevAttrMultiProcessorCount);
}

// Whether a team could take the rows; then it has.
bool team(const Call& call) {
    int64_t packs = call.width / 4;
    const int64_t blocks = packs / kSlice, words = call.rows * blocks * 2;
    if (packs % kSlice != 0) return false;
    const int64_t resident = team_blocks(call.device.index());
    if (blocks > resident) return false;
    TORCH_CHECK(call.rows <= INT_MAX, "layer_norm: ", call.rows, " rows are more than an int holds");
    int rows = static_cast<int>(call.rows);
    int teams = static_cast<int>(std::min<int64_t>((rows + kTeamRows - 1) / kTeamRows, resident / blocks));
    const auto mail = torch::empty({words}, torch::device(call.device).dtype(torch::kLong));
    auto* at_mail = reinterpret_cast<unsigned long long*>(mail.data_ptr<int64_t>());
    C10_CUDA_CHECK(cudaMemsetAsync(at_mail, 0xff, words * sizeof(*at_mail), call.stream));
    const auto* x = static_cast<const Pack<float, 4>*>(call.x);
    const auto* weight = static_cast<const Pack<float, 4>*>(call.weight);
    const auto* bias = static_cast<const Pack<float, 4>*>(call.bias);
    auto* y = static_cast<Pack<float, 4>*>(call.y);
    float eps = call.eps;
    void* arguments[] = {&x, &weight, &bias, &y, &at_mail, &rows, &packs, &teams, &eps};
    C10_CUDA_CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&team_rows),
                                               dim3(static_cast<unsigned>(teams * blocks)), dim3(kTeamThreads),
                                               arguments, kTeamShared, call.stream));
    return true;
}

// The one place that chooses. The arguments of `block`: the most threads of a block, how many such blocks share
// a multiprocessor's registers, and 16-byte packs in a thread's registers.
template <typename T, typename W>
void choose(const Call& call, bool aligned) {
    constexpr int kSize = 16 / sizeof(T);
    if (aligned && call.width % kSize == 0) {
        const int64_t packs = call.width / kSize;
        constexpr bool kWide = sizeof(T) == 4;  // 16-bit values take more registers once converted
        if (packs <= kWarpRowLoads * kWarp) return warp<T, W>(call);
        if (!fills<4>(packs)) return block<T, W, 256, kWide ? 6 : 4, 2>(call);
        if (packs <= (kWide ? 1024 : 2048) || !fills<8>(packs)) return block<T, W, 512, kWide ? 3 : 2, 4>(call);
        if constexpr (kWide) {
            if (packs <= 2048) return block<T, W, 256, 4, 8>(call);
            if (packs <= 4096) return block<T, W, 512, 2, 8>(call);
            if (team(call)) return;
        } else {
            if (packs <= 4096) return block<T, W, 1024, 1, 4>(call);
        }
        return split<T, W>(call);
    }
    if (call.width <= 4 * kWarp) return direct<T, W, 1, 4, true>(call, kWarp, 4);
    if (call.width <= 8 * kDirectThreads) {
        const unsigned threads = (call.width + 8 * kWarp - 1) / (8 * kWarp) * kWarp;
        return direct<T, W, 1, 8, false>(call, threads, 1);
    }
    return direct<T, W, 1, 0, false>(call, kDirectThreads, 1);
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

# Host code is not optimised unless it is asked for; a call took 8.9 us without and 7.0 us with it.
layer_norm = load_inline(
    name="layernorm_speed_of_light",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    extra_cflags=["-O2"],
    extra_cuda_cflags=["-O2"],
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
