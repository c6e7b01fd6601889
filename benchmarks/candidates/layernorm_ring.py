"""LayerNorm of long fp32 rows through a ring of shared memory. A candidate: it has not been timed on a GPU.

Rows of whole slices, 32,768 elements for each block, go to `ring_rows`. Like `team_rows` of
submissions/layernorm/speed_of_light.py it spreads each row over all multiprocessors and reads x once. There every warp
loads, sums, waits and writes by turns; here each has one task. A thread keeps a few bulk copies of x on their way into
a ring of 28 slots, four warps sum what has arrived, two exchange statistics with the other blocks, eight write y into
the place of x, and a thread sends it by bulk copies. Writers hold bias and nearly half of weight in registers, which
the other warps leave to them; the rest of weight comes from L2.

Everything else, any width, alignment and type, goes to `block_rows`: right, and not fast.

Numerics: of what a lane holds the mean, then deviations from it, their squares, and their own mean: what rounding took
from the first. Parts are joined by the formula of Chan, Golub and LeVeque (1983), with a mean of two floats.

It needs sm_90a: `setmaxnreg` is in no other architecture, and without it the writers spill.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

ALSO_FOR = ["layernorm_dtypes"]  # one file for all dtypes

CPP = r"""
torch::Tensor layer_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, double eps);
"""

CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <algorithm>
#include <climits>
#include <type_traits>
#include <utility>

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ float2 operator+(const float2& a, const float2& b) {
    return make_float2(a.x + b.x, a.y + b.y);
}
__device__ __forceinline__ double2 operator+(const double2& a, const double2& b) {
    return make_double2(a.x + b.x, a.y + b.y);
}
__device__ __forceinline__ float shuffled(float v, int mask) { return __shfl_xor_sync(kAllLanes, v, mask); }
__device__ __forceinline__ double shuffled(double v, int mask) { return __shfl_xor_sync(kAllLanes, v, mask); }
__device__ __forceinline__ float2 shuffled(const float2& v, int mask) {
    return make_float2(shuffled(v.x, mask), shuffled(v.y, mask));
}
__device__ __forceinline__ double2 shuffled(const double2& v, int mask) {
    return make_double2(shuffled(v.x, mask), shuffled(v.y, mask));
}

// The sum over each kLanes neighbouring lanes, for all of them.
template <int kLanes = kWarp, typename V>
__device__ __forceinline__ V sum_over_lanes(V v) {
#pragma unroll
    for (int mask = kLanes / 2; mask > 0; mask /= 2) v = v + shuffled(v, mask);
    return v;
}

// ------------------------------------------------------------------------------------------------------
// block_rows: a block for each row, which it reads for each pass. Any width, alignment and type.

constexpr int kRowThreads = 256, kRowWarps = kRowThreads / kWarp;

// What sums are kept in.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ __forceinline__ double wide(double v) { return v; }
__device__ __forceinline__ float wide(float v) { return v; }
__device__ __forceinline__ float wide(__half v) { return __half2float(v); }
__device__ __forceinline__ float wide(__nv_bfloat16 v) { return __bfloat162float(v); }

template <typename T>
__device__ __forceinline__ T narrow(Wide<T> v) {
    if constexpr (std::is_same_v<T, __half>) return __float2half_rn(v);
    else if constexpr (std::is_same_v<T, __nv_bfloat16>) return __float2bfloat16_rn(v);
    else return v;
}

// The sum over a block, for all of its threads. `of_warps` is not used again before the block's next barrier.
template <typename V>
__device__ __forceinline__ V sum_over_block(V v, V* of_warps) {
    v = sum_over_lanes(v);
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = v;
    __syncthreads();
    return sum_over_lanes<kRowWarps>(of_warps[threadIdx.x % kRowWarps]);
}

template <typename T, typename W>
__global__ void __launch_bounds__(kRowThreads)
block_rows(const T* x, const W* weight, const W* bias, T* y, int64_t rows, int64_t width, Wide<T> eps) {
    using A = Wide<T>;
    using Sums = std::conditional_t<std::is_same_v<T, double>, double2, float2>;  // of deviations, of their squares
    __shared__ A of_warps[kRowWarps];
    __shared__ Sums deviations_of_warps[kRowWarps];
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* in = x + row * width;
        T* out = y + row * width;
        A sum = 0;
        for (int64_t i = threadIdx.x; i < width; i += kRowThreads) sum += wide(in[i]);
        const A mean = sum_over_block(sum, of_warps) / A(width);
        Sums sums{};
        for (int64_t i = threadIdx.x; i < width; i += kRowThreads) {
            const A d = wide(in[i]) - mean;
            sums.x += d;
            sums.y += d * d;
        }
        sums = sum_over_block(sums, deviations_of_warps);
        const A correction = sums.x / A(width);  // what rounding took from the mean; NaN where the row has Inf or NaN
        const A variance = sums.y / A(width) - correction * correction;
        const A rstd = A(1) / sqrt((variance < 0 ? A(0) : variance) + eps);
        for (int64_t i = threadIdx.x; i < width; i += kRowThreads) {
            const A unit = ((wide(in[i]) - mean) - correction) * rstd;
            out[i] = narrow<T>(unit * A(wide(weight[i])) + A(wide(bias[i])));
        }
    }
}

// ------------------------------------------------------------------------------------------------------
// Moments of many values, and how those of parts are joined.

struct alignas(16) Pack {
    float at[4];
};

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

// ------------------------------------------------------------------------------------------------------
// Barriers in shared memory, bulk copies, and hints: what C++ has no words for.

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void make_barrier(uint64_t* barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(shared_address(barrier)) : "memory");
}

// Whether the phase of this parity is over. Of the phase before a barrier's first, whose parity is 1, it is.
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

__device__ __forceinline__ Pack load_with(const Pack* p, uint64_t policy) {
    Pack v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.f32 {%0,%1,%2,%3}, [%4], %5;"
                 : "=f"(v.at[0]), "=f"(v.at[1]), "=f"(v.at[2]), "=f"(v.at[3])
                 : "l"(p), "l"(policy));
    return v;
}

// Between what threads wrote into shared memory and a bulk copy that reads it.
__device__ __forceinline__ void show_to_copies() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

__device__ __forceinline__ void bulk_load(Pack* to, const Pack* from, unsigned bytes, uint64_t* arrived,
                                          uint64_t policy) {
    const unsigned barrier = shared_address(arrived);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;"
                 : : "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(barrier), "l"(policy) : "memory");
}

__device__ __forceinline__ void bulk_prefetch(const Pack* from, unsigned bytes, uint64_t policy) {
    asm volatile("cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, %2;"
                 : : "l"(from), "r"(bytes), "l"(policy) : "memory");
}

__device__ __forceinline__ void bulk_store(Pack* to, const Pack* from, unsigned bytes, uint64_t policy) {
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
// Mail: a part's moments of a row, for all other blocks. Memory is all ones before. Each word says by itself
// whether it has come, so nothing is asked of the order or the unity of the four.

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
// ring_rows: each row spread over a team of blocks, one for each multiprocessor. A row goes by chunks of 8 KB of a
// block: a chunk arrives in a slot of the ring, is summed, waits for the row's statistics, gives its place to y, is
// sent, and leaves the slot to the chunk that is kSlots further on. So while one row is written, the next arrives and
// is summed. Chunks of a row go round all blocks, so that blocks at the same chunk read neighbouring memory.

// Warps by task. setmaxnreg is for four warps at a time: 8 * 224 + 8 * 32 registers of 32 lanes each are all 65,536.
constexpr int kWriters = 8, kSummers = 4, kMovers = 4;
constexpr int kLoader = kWriters + kSummers, kStorer = kLoader + 1, kPostmen = kStorer + 1, kPostmenWarps = 2;
constexpr int kRingThreads = (kWriters + kSummers + kMovers) * kWarp;
constexpr int kWriterRegisters = 224, kSummerRegisters = 32, kMoverRegisters = 32;

constexpr int kChunkPacks = 2;  // of a writer's lane
constexpr int kChunk = kWriters * kWarp * kChunkPacks;
constexpr unsigned kChunkBytes = kChunk * sizeof(Pack);
constexpr int kSummed = kChunk / (kSummers * kWarp);  // packs of a chunk, of a summer's lane
constexpr int kChunks = 16;                           // of a row, of a block
constexpr int kSlice = kChunks * kChunk;
constexpr int kLanePacks = kChunks * kChunkPacks;  // of a row, of a writer's lane
constexpr int kSlots = 28;                         // 224 KB, all that barriers leave of shared memory
constexpr int kRingShared = kSlots * kChunkBytes;

// Short queues: memory that is full of loads and stores delays the mail. What is asked into L2 fills no queue of the
// multiprocessor, and shortens the way of what is loaded next.
constexpr int kLoadsUnderWay = 2;
constexpr int kStoresUnderWay = 4;
constexpr int kChunksAhead = 3;
constexpr int kNapNs = 50;  // between two looks at the mail, which is in L2, where all that is copied passes
// Blocks of a cluster that send one mail together: 1 or 8.
constexpr int kClusterBlocks = 1;

// Loads wait for one that set out kLoadsUnderWay before. A barrier tells this phase from the last, no more, so that one
// must not be a whole round of the ring behind.
static_assert(kLoadsUnderWay < kSlots, "a load would wait for itself");
// All of a row arrives before any of it is written.
static_assert(kSlots >= kChunks, "a row must fit into the ring");
// What is kept for a row is kept for two. The third is summed when its last chunk has arrived, so when one of the first
// has been sent, whose statistics all writers then have read.
static_assert(kSlots < 3 * kChunks, "a third row might arrive");

// Packs of weight in registers; the others come from L2, so many ahead. The two kinds alternate: what comes from L2 has
// nearly twice the time that it would have one behind the other.
constexpr int kHeldWeights = 14, kStreamedWeights = kLanePacks - kHeldWeights, kWeightsAhead = 3;
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

// The blocks of a cluster meet. It also makes barriers of one known to all.
__device__ __forceinline__ void meet() {
    if constexpr (kClusterBlocks > 1) {
        asm volatile("barrier.cluster.arrive.release.aligned;" : : : "memory");
        asm volatile("barrier.cluster.wait.acquire.aligned;" : : : "memory");
    } else {
        __syncthreads();
    }
}

// A block's moments for the first block of its cluster, and the arrival that says so.
__device__ __forceinline__ void tell_first(Mail* box, uint64_t* barrier, const Moments& v) {
    unsigned there, barrier_there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(box)), "r"(0));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier_there) : "r"(shared_address(barrier)), "r"(0));
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1,%2,%3,%4};"
                 : : "r"(there), "f"(v.mean), "f"(v.correction), "f"(v.squares), "f"(0.0f) : "memory");
    asm volatile("fence.acq_rel.cluster;" : : : "memory");
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" : : "r"(barrier_there) : "memory");
}

__device__ __forceinline__ void wait_for_cluster(uint64_t* barrier, unsigned parity) {
    unsigned over = 0;
    while (!over) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; "
                     "selp.b32 %0, 1, 0, p; }"
                     : "=r"(over) : "r"(shared_address(barrier)), "r"(parity) : "memory");
    }
}

__global__ void __launch_bounds__(kRingThreads, 1)
ring_rows(const Pack* x, const Pack* weight, const Pack* bias, Pack* y, Mail* mail, int rows, int blocks, float eps) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // bulk copies; nothing launches this elsewhere
    extern __shared__ uint4 ring_memory[];
    Pack* const ring = reinterpret_cast<Pack*>(ring_memory);
    __shared__ uint64_t arrived[kSlots], written[kSlots], left[kSlots];  // of a slot: x is there, y is there, y is gone
    // Of a row; even and odd ones have their own: summers have summed it, the cluster's blocks have, all mail has come.
    __shared__ uint64_t summed[2], gathered[2], known[2];
    __shared__ Moments of_summers[2][kSummers];
    __shared__ Mail of_blocks[2][kClusterBlocks];
    __shared__ float4 of_postmen[2][kPostmenWarps];  // the reference's mean and correction, and sums around it
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    const int block = blockIdx.x % blocks, team = blockIdx.x / blocks, teams = gridDim.x / blocks;
    const int turns = (rows - team + teams - 1) / teams;  // rows of this team
    if (threadIdx.x < kSlots) {
        make_barrier(&arrived[threadIdx.x], 1);
        make_barrier(&written[threadIdx.x], kWriters);
        make_barrier(&left[threadIdx.x], 1);
        show_to_copies();
    } else if (threadIdx.x < kSlots + 2) {
        make_barrier(&summed[threadIdx.x - kSlots], kSummers);
        make_barrier(&gathered[threadIdx.x - kSlots], kClusterBlocks);
        make_barrier(&known[threadIdx.x - kSlots], kPostmenWarps);
    }
    meet();

    const auto row_of = [&](int turn) { return team + int64_t(turn) * teams; };
    // Where the chunk lies in x and y that is the team's `number`th.
    const auto place_of = [&](int number) {
        return ((row_of(number / kChunks) * kChunks + number % kChunks) * blocks + block) * kChunk;
    };
    const int parts = blocks / kClusterBlocks;  // of a row, each with a mail
    constexpr float kPartCount = float(kSlice) * 4 * kClusterBlocks;

    if (warp < kWriters) {
        take_registers<kWriterRegisters>();
        const uint64_t once = evicted_first(), often = evicted_last();
        const int mine = warp * kChunkPacks * kWarp + lane;  // in a chunk
        const Pack* const w = weight + block * kChunk + mine;
        const Pack* const b = bias + block * kChunk + mine;
        const auto column = [&](int k) { return k / kChunkPacks * (blocks * kChunk) + k % kChunkPacks * kWarp; };
        Pack shift[kLanePacks], held[kHeldWeights], ahead[kWeightsAhead];
        for_each_below<kLanePacks>([&](auto pack) {
            constexpr int k = decltype(pack)::value;
            shift[k] = load_with(b + column(k), once);
            if constexpr (is_held(k)) held[held_before(k)] = load_with(w + column(k), once);
        });
        for_each_below<kWeightsAhead>([&](auto number) {
            constexpr int k = streamed(decltype(number)::value);
            ahead[decltype(number)::value] = load_with(w + column(k), often);
        });
        int slot = 0;
#pragma unroll 1
        for (int turn = 0; turn < turns; turn++) {
            // Once the row's statistics are known, all of it has arrived, so no chunk is waited for.
            wait(&known[turn % 2], turn / 2 % 2);
            float4 sums = of_postmen[turn % 2][0];
#pragma unroll
            for (int i = 1; i < kPostmenWarps; i++) {
                sums.z += of_postmen[turn % 2][i].z;
                sums.w += of_postmen[turn % 2][i].w;
            }
            const Moments row = whole({sums.x, sums.y, 0.0f}, make_float2(sums.z, sums.w), kPartCount, float(parts));
            const float rstd = rsqrtf(__fdividef(row.squares, kPartCount * parts) + eps);
            const float offset = -row.correction * rstd;
            for_each_below<kChunks>([&](auto chunk) {
                Pack* const at = ring + slot * kChunk + mine;
                Pack v[kChunkPacks];
#pragma unroll
                for (int i = 0; i < kChunkPacks; i++) v[i] = at[i * kWarp];
                for_each_below<kChunkPacks>([&](auto pack) {
                    constexpr int i = decltype(pack)::value, k = decltype(chunk)::value * kChunkPacks + i;
                    Pack scale;
                    if constexpr (is_held(k)) {
                        scale = held[held_before(k)];
                    } else {
                        constexpr int kNumber = k - held_before(k);
                        constexpr int kNext = streamed((kNumber + kWeightsAhead) % kStreamedWeights);
                        scale = ahead[kNumber % kWeightsAhead];
                        ahead[kNumber % kWeightsAhead] = load_with(w + column(kNext), often);
                    }
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const float unit = fmaf(v[i].at[j] - row.mean, rstd, offset);
                        v[i].at[j] = fmaf(unit, scale.at[j], shift[k].at[j]);
                    }
                    at[i * kWarp] = v[i];
                });
                show_to_copies();
                __syncwarp();
                if (lane == 0) arrive(&written[slot]);
                slot = slot + 1 < kSlots ? slot + 1 : 0;
            });
        }
    } else if (warp < kLoader) {
        leave_registers<kSummerRegisters>();
        const int summer = warp - kWriters;
        const Pack* const mine = ring + summer * kSummed * kWarp + lane;
        constexpr float kCount = kSummed * 4;  // of a lane in a chunk
        Place place;
#pragma unroll 1
        for (int turn = 0; turn < turns; turn++) {
            Moments sums;
#pragma unroll 1
            for (int before = 0; before < kChunks; before++) {
                wait(&arrived[place.slot], place.parity);
                Pack part[kSummed];
                float sum = 0.0f;
#pragma unroll
                for (int i = 0; i < kSummed; i++) {
                    part[i] = mine[place.slot * kChunk + i * kWarp];
                    sum += (part[i].at[0] + part[i].at[1]) + (part[i].at[2] + part[i].at[3]);
                }
                place.advance();
                const float mean = sum * (1.0f / kCount);
                float deviations = 0.0f, squares = 0.0f;
#pragma unroll
                for (int i = 0; i < kSummed; i++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const float d = part[i].at[j] - mean;
                        deviations += d;
                        squares = fmaf(d, d, squares);
                    }
                }
                const float correction = deviations * (1.0f / kCount);
                squares = fmaf(-correction, deviations, squares);
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
                wait(&left[place.slot], place.parity ^ 1);
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
                arrive(&left[oldest]);
                oldest = oldest + 1 < kSlots ? oldest + 1 : 0;
            };
#pragma unroll 1
            for (int number = 0; number < chunks; number++) {
                // Nothing to send: so slots are left as soon as they can be, and loads never wait for the next y.
                while (under_way > 0 && !is_over(&written[place.slot], place.parity)) leave_oldest();
                wait(&written[place.slot], place.parity);
                bulk_store(y + place_of(number), ring + place.slot * kChunk, kChunkBytes, once);
                under_way++;
                if (under_way > kStoresUnderWay) leave_oldest();
                place.advance();
            }
            wait_for_stores<kStoresUnderWay>(0);
        } else if (warp >= kPostmen) {
            const int postman = warp - kPostmen;
            const int part = block / kClusterBlocks;
#pragma unroll 1
            for (int turn = 0; turn < turns; turn++) {
                const int which = turn % 2;
                const unsigned parity = turn / 2 % 2;
                wait(&summed[which], parity);
                constexpr float kSummerCount = float(kSlice) * 4 / kSummers;
                Moments own = of_summers[which][0];
                float2 sums = make_float2(0.0f, own.squares);
#pragma unroll
                for (int i = 1; i < kSummers; i++) sums = sums + around(own, of_summers[which][i], kSummerCount);
                own = whole(own, sums, kSummerCount, kSummers);
                Mail* const box = mail + row_of(turn) * parts;
                if (postman == 0) {
                    if constexpr (kClusterBlocks > 1) {
                        const int rank = block % kClusterBlocks;
                        if (lane == 0) tell_first(&of_blocks[which][rank], &gathered[which], own);
                        if (rank == 0) {
                            wait_for_cluster(&gathered[which], parity);
                            const Mail told = of_blocks[which][lane % kClusterBlocks];
                            constexpr float kCount = float(kSlice) * 4;
                            const float2 all = sum_over_lanes<kClusterBlocks>(
                                around(own, {told.mean, told.correction, told.squares}, kCount));
                            if (lane == 0) send(box + part, whole(own, all, kCount, kClusterBlocks));
                        }
                    } else {
                        if (lane == 0) send(box + part, own);
                    }
                }
                // The block's own mean is the reference, as good as any other. Without clusters a lane has two mails or
                // three; it looks at two at a time.
                sums = make_float2(0.0f, 0.0f);
                constexpr int kLanes = kPostmenWarps * kWarp, kMails = kClusterBlocks > 1 ? 1 : 2;
                for (int i = postman * kWarp + lane; i < parts; i += kMails * kLanes) {
                    const bool two = kMails > 1 && i + kLanes < parts;
                    const int other = two ? i + kLanes : i;
                    Mail a = look(box + i), b = kMails > 1 ? look(box + other) : a;
                    while (!has_come(a) || !has_come(b)) {
                        __nanosleep(kNapNs);
                        a = look(box + i);
                        b = kMails > 1 ? look(box + other) : a;
                    }
                    sums = sums + around(own, {a.mean, a.correction, a.squares}, kPartCount);
                    if (two) sums = sums + around(own, {b.mean, b.correction, b.squares}, kPartCount);
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
// From shape to kernel.

struct Call {
    const void *x, *weight, *bias;
    void* y;
    int64_t rows, width;
    double eps;
    c10::Device device;
    cudaStream_t stream;
};

template <typename T, typename W>
void block(const Call& call) {
    const auto blocks = static_cast<unsigned>(std::min<int64_t>(call.rows, INT_MAX));
    block_rows<T, W><<<blocks, kRowThreads, 0, call.stream>>>(
        static_cast<const T*>(call.x), static_cast<const W*>(call.weight), static_cast<const W*>(call.bias),
        static_cast<T*>(call.y), call.rows, call.width, static_cast<Wide<T>>(call.eps));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// How many blocks of ring_rows can run at the same time, so that they may wait for each other; 0 where they cannot be.
int64_t resident(const cudaLaunchConfig_t& config, int device) {
    const auto attribute = [&](cudaDeviceAttr which) {
        int value = 0;
        C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
        return value;
    };
    cudaFuncAttributes compiled = {};
    C10_CUDA_CHECK(cudaFuncGetAttributes(&compiled, ring_rows));
    if (compiled.ptxVersion < 90 || attribute(cudaDevAttrComputeCapabilityMajor) < 9 ||
        !attribute(cudaDevAttrCooperativeLaunch) ||
        attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) < kRingShared + int(compiled.sharedSizeBytes)) {
        return 0;
    }
    C10_CUDA_CHECK(cudaFuncSetAttribute(ring_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, kRingShared));
    int together = 0;
    if constexpr (kClusterBlocks > 1) {
        C10_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&together, ring_rows, &config));
        return int64_t(together) * kClusterBlocks;
    }
    C10_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&together, ring_rows, kRingThreads, kRingShared));
    return int64_t(together) * attribute(cudaDevAttrMultiProcessorCount);
}

// Whether the ring could take the rows; then it has.
bool ring(const Call& call) {
    if (call.width % (kSlice * 4) != 0) return false;
    const int64_t blocks = call.width / (kSlice * 4), parts = blocks / kClusterBlocks;
    if (blocks % kClusterBlocks != 0 || call.rows > INT_MAX / kChunks) return false;
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeCooperative;
    attributes[0].val.cooperative = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = kClusterBlocks;
    attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(std::min<int64_t>(blocks, INT_MAX)));
    config.blockDim = dim3(kRingThreads);
    config.dynamicSmemBytes = kRingShared;
    config.stream = call.stream;
    config.attrs = attributes;
    config.numAttrs = kClusterBlocks > 1 ? 2 : 1;
    const int64_t most = resident(config, call.device.index());
    if (blocks > most) return false;

    const auto bytes = torch::device(call.device).dtype(torch::kByte);
    const auto mail = torch::empty({call.rows * parts * int64_t(sizeof(Mail))}, bytes);
    auto* const boxes = reinterpret_cast<Mail*>(mail.data_ptr<uint8_t>());
    C10_CUDA_CHECK(cudaMemsetAsync(boxes, 0xff, mail.numel(), call.stream));
    config.gridDim = dim3(static_cast<unsigned>(std::min(call.rows, most / blocks) * blocks));
    C10_CUDA_CHECK(cudaLaunchKernelEx(&config, ring_rows, static_cast<const Pack*>(call.x),
                                      static_cast<const Pack*>(call.weight), static_cast<const Pack*>(call.bias),
                                      static_cast<Pack*>(call.y), boxes, static_cast<int>(call.rows),
                                      static_cast<int>(blocks), static_cast<float>(call.eps)));
    return true;
}

torch::Tensor layer_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, double eps) {
    TORCH_CHECK(x.is_cuda(), "layer_norm: x must be a CUDA tensor, got one on ", x.device());
    TORCH_CHECK(weight.device() == x.device() && bias.device() == x.device(), "layer_norm: x is on ", x.device(),
                " but weight is on ", weight.device(), " and bias on ", bias.device());
    TORCH_CHECK(weight.dim() >= 1 && x.dim() >= weight.dim() &&
                    x.sizes().slice(x.dim() - weight.dim()) == weight.sizes(),
                "layer_norm: the last dimensions of x ", x.sizes(), " must be normalized_shape ", weight.sizes());
    TORCH_CHECK(bias.sizes() == weight.sizes(), "layer_norm: bias has shape ", bias.sizes(), " but weight has shape ",
                weight.sizes());
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
    torch::Tensor y = torch::empty_like(x);
    if (y.numel() == 0) return y;  // a launch of no blocks is an error

    const int64_t width = weight.numel();
    Call call = {x.data_ptr(), weight.data_ptr(), bias.data_ptr(), y.data_ptr(), x.numel() / width, width, eps,
                 x.device()};
    call.stream = c10::cuda::getCurrentCUDAStream();
    const auto bits = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.weight) |
                      reinterpret_cast<uintptr_t>(call.bias) | reinterpret_cast<uintptr_t>(call.y);
    if (type == torch::kDouble) {
        block<double, double>(call);
    } else if (type == torch::kFloat) {
        if (bits % 16 != 0 || !ring(call)) block<float, float>(call);
    } else if (type == torch::kHalf) {
        parameter_type == type ? block<__half, __half>(call) : block<__half, float>(call);
    } else {
        parameter_type == type ? block<__nv_bfloat16, __nv_bfloat16>(call) : block<__nv_bfloat16, float>(call);
    }
    return y;
}
"""

# sm_90a by name: torch asks for the GPU's plain architecture, which lacks setmaxnreg. Other GPUs compile the code for
# compute_80 when it is loaded.
layer_norm = load_inline(
    name="layernorm_ring",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["layer_norm"],
    extra_cflags=["-O2"],
    extra_cuda_cflags=[
        "-O2",
        "-gencode=arch=compute_90a,code=sm_90a",
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
        return layer_norm(x, self.weight, self.bias, self.eps)
