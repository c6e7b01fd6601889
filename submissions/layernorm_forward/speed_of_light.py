"""LayerNorm's forward for a training step, fp32: y, and each row's mean and 1 / sqrt(variance + eps).

Rows of up to 16,384 elements are read once, into the registers of a block. All loads of a thread are on their way
before the first is used.

Longer rows whose length is a multiple of 32,768 elements, a slice, are read once, too, on sm_90a alone. A team of
blocks has a row, a slice for each block, and no multiprocessor has two blocks. It is the ring of
layernorm/speed_of_light.py, line by line: bulk copies into shared memory, warps with one task each, and mail, by
which blocks tell each other the moments of their slices (docs/notes/speed-of-light.md). One thread of each team
writes the statistics.

All other rows are read three times by one block: long ones of other lengths, all long ones on other GPUs, widths that 4
does not divide, memory that is not aligned. For long ones `read_once` reads x twice, by many blocks.

Numerics: a mean, then deviations from it, their squares, and their own mean: what rounding took from the first. Parts
of a row are joined by the formula of Chan, Golub and LeVeque (1983).

Bytes moved: 8192x4096 x and y, 268 MB; (16, 64, 256, 256) x, y, weight and bias, 570 MB.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = "std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);"

CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <algorithm>
#include <climits>
#include <cstdint>
#include <utility>

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

struct alignas(16) Pack4 {  // one load or store
    static constexpr int kValues = 4;
    float at[kValues];
};

// ------------------------------------------------------------------------------------------------------
// Sums, and the statistics of a row.

__device__ __forceinline__ float2 operator+(const float2& a, const float2& b) {
    return make_float2(a.x + b.x, a.y + b.y);
}
__device__ __forceinline__ float shuffled(float v, int mask) { return __shfl_xor_sync(kAllLanes, v, mask); }
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

__device__ __forceinline__ float sum_of(const Pack4& v) { return (v.at[0] + v.at[1]) + (v.at[2] + v.at[3]); }

// -> deviations from `mean`, and their squares
__device__ __forceinline__ float2 deviations_of(const Pack4& v, float mean) {
    float2 sums = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float d = v.at[j] - mean;
        sums = make_float2(sums.x + d, fmaf(d, d, sums.y));
    }
    return sums;
}

// Makes the compiler take a pack as it finds it. The ring's text is for 16 bits, too, and there it saves registers.
template <typename P>
__device__ __forceinline__ void keep_packed(P& pack) {
    static_assert(sizeof(P) == 16, "four registers");
    uint4& v = reinterpret_cast<uint4&>(pack);
    asm volatile("" : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w));
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

__device__ __forceinline__ float normalised(float x, float weight, float bias, const Statistics& row) {
    return fmaf(fmaf(x - row.mean, row.rstd, -row.correction * row.rstd), weight, bias);
}

__device__ __forceinline__ Pack4 normalised(const Pack4& x, const Pack4& weight, const Pack4& bias,
                                            const Statistics& row) {
    Pack4 y;
#pragma unroll
    for (int j = 0; j < 4; j++) y.at[j] = normalised(x.at[j], weight.at[j], bias.at[j], row);
    return y;
}

__device__ __forceinline__ void write_down(const Statistics& of, float* mean_of, float* inv_std_of, int64_t row) {
    mean_of[row] = of.mean + of.correction;
    inv_std_of[row] = of.rstd;
}

// ------------------------------------------------------------------------------------------------------
// A block has a row in registers: kLoads packs in each thread, blockDim.x apart.

template <int kThreads, int kBlocks, int kLoads>
__global__ void __launch_bounds__(kThreads, kBlocks)
row_in_registers(const Pack4* x, const Pack4* weight, const Pack4* bias, Pack4* y, float* mean_of, float* inv_std_of,
                 int packs, float eps) {
    constexpr int kWarps = kThreads / kWarp;
    const int64_t first = int64_t(blockIdx.x) * packs + threadIdx.x;
    const int stride = blockDim.x, left = packs - 1 - int(threadIdx.x);
    // Only the last pack of a thread may lie behind the row: so few threads are launched (`fills`). It loads the row's
    // last one then. A load under a condition would let the compiler use the others first.
    const auto here = [&](int k) { return k < kLoads - 1 || k * stride <= left; };
    const auto at = [&](int k) { return k < kLoads - 1 ? k * stride : min(k * stride, left); };
    Pack4 kept[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; k++) kept[k] = x[first + at(k)];

    __shared__ float of_warps[kWarps];
    __shared__ float2 deviations_of_warps[kWarps];
    const float width = 4.0f * packs;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kLoads; k++) sum += here(k) ? sum_of(kept[k]) : 0.0f;
    const float mean = __fdividef(sum_over_row<kWarps>(sum, of_warps), width);
    float2 sums = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int k = 0; k < kLoads; k++) sums = sums + (here(k) ? deviations_of(kept[k], mean) : make_float2(0.0f, 0.0f));
    const Statistics row = statistics_of(mean, sum_over_row<kWarps>(sums, deviations_of_warps), width, eps);
#pragma unroll
    for (int k = 0; k < kLoads; k++) {
        const Pack4 scale = weight[threadIdx.x + at(k)], shift = bias[threadIdx.x + at(k)];
        if (here(k)) y[first + k * stride] = normalised(kept[k], scale, shift, row);
    }
    if (threadIdx.x == 0) write_down(row, mean_of, inv_std_of, blockIdx.x);
}

// ------------------------------------------------------------------------------------------------------
// Any width, any alignment: a block reads its row for each pass.

constexpr int kElementThreads = 1024;

__global__ void __launch_bounds__(kElementThreads)
row_by_elements(const float* x, const float* weight, const float* bias, float* y, float* mean_of, float* inv_std_of,
                int64_t width, float eps) {
    constexpr int kWarps = kElementThreads / kWarp;
    x += blockIdx.x * width;
    y += blockIdx.x * width;
    __shared__ float of_warps[kWarps];
    __shared__ float2 deviations_of_warps[kWarps];
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += x[i];
    const float mean = __fdividef(sum_over_row<kWarps>(sum, of_warps), width);
    float2 sums = make_float2(0.0f, 0.0f);
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
        const float d = x[i] - mean;
        sums = sums + make_float2(d, d * d);
    }
    const Statistics row = statistics_of(mean, sum_over_row<kWarps>(sums, deviations_of_warps), width, eps);
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) y[i] = normalised(x[i], weight[i], bias[i], row);
    if (threadIdx.x == 0) write_down(row, mean_of, inv_std_of, blockIdx.x);
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
ring_rows(const P* x, const P* weight, const P* bias, P* y, float* mean_of, float* inv_std_of, Mail* mail, int rows,
          int blocks, float eps) {
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
            if (block == 0 && threadIdx.x == 0) write_down(statistics, mean_of, inv_std_of, row_of(turn));
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
// From shape to kernel.

struct Call {
    const float *x, *weight, *bias;
    float *y, *mean, *inv_std;
    int64_t rows, width;
    float eps;
    c10::Device device;
    cudaStream_t stream;
};

const Pack4* packs_of(const float* of) { return reinterpret_cast<const Pack4*>(of); }
Pack4* packs_of(float* of) { return reinterpret_cast<Pack4*>(of); }

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

template <int kThreads, int kBlocks, int kLoads>
void in_registers(const Call& call) {
    const int64_t packs = call.width / 4;
    row_in_registers<kThreads, kBlocks, kLoads>
        <<<static_cast<unsigned>(call.rows), static_cast<unsigned>(threads_for<kLoads>(packs)), 0, call.stream>>>(
            packs_of(call.x), packs_of(call.weight), packs_of(call.bias), packs_of(call.y), call.mean, call.inv_std,
            static_cast<int>(packs), call.eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// How many blocks of ring_rows can run at the same time, so that they may wait for each other; 0 where they cannot be.
int64_t ring_blocks(int device) {
    const auto attribute = [&](cudaDeviceAttr which) {
        int value = 0;
        C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
        return value;
    };
    const auto kernel = ring_rows<Pack4>;
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

// Whether the ring could take the rows; then it has.
bool ring(const Call& call) {
    const int64_t packs = call.width / 4, across = packs / kSlice;
    if (packs % kSlice != 0 || call.rows > INT_MAX / kChunks) return false;
    const int64_t resident = ring_blocks(call.device.index());
    if (across > resident) return false;
    const auto mail = torch::empty({call.rows * across * int64_t(sizeof(Mail))},
                                   torch::device(call.device).dtype(torch::kByte));
    auto* boxes = reinterpret_cast<Mail*>(mail.data_ptr<uint8_t>());
    C10_CUDA_CHECK(cudaMemsetAsync(boxes, 0xff, mail.numel(), call.stream));
    const Pack4 *x = packs_of(call.x), *weight = packs_of(call.weight), *bias = packs_of(call.bias);
    Pack4* y = packs_of(call.y);
    float *mean = call.mean, *inv_std = call.inv_std, eps = call.eps;
    int rows = static_cast<int>(call.rows), blocks = static_cast<int>(across);
    void* arguments[] = {&x, &weight, &bias, &y, &mean, &inv_std, &boxes, &rows, &blocks, &eps};
    const int64_t grid = std::min(call.rows, resident / across) * across;
    C10_CUDA_CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&ring_rows<Pack4>),
                                               dim3(static_cast<unsigned>(grid)), dim3(kRingThreads), arguments,
                                               kRingShared, call.stream));
    return true;
}

// The one place that chooses. The arguments of `in_registers`: the most threads of a block, how many such blocks share
// a multiprocessor's registers, and the packs in a thread's.
void choose(const Call& call, bool aligned) {
    const int64_t packs = call.width / 4;
    if (aligned && call.width % 4 == 0) {
        if (packs <= kWarp) return in_registers<kWarp, 32, 1>(call);
        if (packs <= 256 || !fills<4>(packs)) return in_registers<256, 6, 2>(call);
        if (packs <= 1024 || !fills<8>(packs)) return in_registers<512, 3, 4>(call);
        if (packs <= 2048) return in_registers<256, 4, 8>(call);
        if (packs <= 4096) return in_registers<512, 2, 8>(call);
        if (ring(call)) return;
    }
    const auto threads = static_cast<unsigned>(std::min<int64_t>(threads_for<1>(call.width), kElementThreads));
    row_by_elements<<<static_cast<unsigned>(call.rows), threads, 0, call.stream>>>(
        call.x, call.weight, call.bias, call.y, call.mean, call.inv_std, call.width, call.eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.scalar_type() == torch::kFloat32,
                "x must be a contiguous fp32 tensor on a GPU, got ", x.scalar_type(), " on ", x.device());
    TORCH_CHECK(weight.device() == x.device() && bias.device() == x.device() && weight.is_contiguous() &&
                    bias.is_contiguous() && weight.scalar_type() == torch::kFloat32 &&
                    bias.scalar_type() == torch::kFloat32 && weight.sizes() == bias.sizes() &&
                    x.dim() >= weight.dim() && x.sizes().slice(x.dim() - weight.dim()) == weight.sizes(),
                "weight ", weight.sizes(), " and bias ", bias.sizes(),
                " must be contiguous fp32 tensors of the last dimensions of x ", x.sizes(), " beside it");
    const int64_t width = weight.numel(), rows = width ? x.numel() / width : 0;
    TORCH_CHECK(rows <= INT_MAX, rows, " rows are more than a grid can have");
    const auto leading = x.sizes().slice(0, x.dim() - weight.dim());
    auto y = torch::empty_like(x);
    auto mean = torch::empty(leading, x.options()), inv_std = torch::empty(leading, x.options());
    if (rows == 0) return {y, mean, inv_std};  // a launch of no blocks is an error
    const c10::cuda::CUDAGuard guard(x.device());
    const Call call = {x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(),
                       mean.data_ptr<float>(), inv_std.data_ptr<float>(), rows, width, static_cast<float>(eps),
                       x.device(), c10::cuda::getCurrentCUDAStream()};
    const auto bits = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.weight) |
                      reinterpret_cast<uintptr_t>(call.bias) | reinterpret_cast<uintptr_t>(call.y);
    choose(call, bits % 16 == 0);
    return {y, mean, inv_std};
}
"""

# sm_90a by name: torch asks for the GPU's plain architecture, which lacks setmaxnreg. Other GPUs run what is for sm_80,
# or compile it when it is loaded.
extension = load_inline(
    name="layernorm_forward_speed_of_light",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["forward"],
    extra_cuda_cflags=[
        "-O2",
        "--threads=2",
        "-gencode=arch=compute_90a,code=sm_90a",
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_80,code=compute_80",
    ],
)


class ModelNew(nn.Module):
    """nn.LayerNorm that gives (y, mean, inv_std)."""

    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        y, mean, inv_std = extension.forward(x.contiguous(), self.weight, self.bias, self.eps)
        return y, mean, inv_std
