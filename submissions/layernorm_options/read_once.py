"""LayerNorm with all of its options, each element read once where a row fits a block, or the ring of all blocks.

A row of up to 64 KB lives in the registers of a warp or a block, loaded 16 bytes at a time by as many small blocks as
the multiprocessors hold, so that some load while others reduce. All loads of a thread are on their way before the first
is used.

Longer rows that are a multiple of 128 KB, a slice, go through the ring of layernorm/speed_of_light.py on sm_90a, here
also without weight or bias (docs/notes/speed-of-light.md): a team of blocks has a row, a slice for
each block. They go there only if the teams' blocks, one on a multiprocessor, fill nine tenths of the GPU.

All other long rows are read twice: one kernel takes the moments of chunks, the next merges those of its row and writes
a chunk, from the last to the first, because the end of x is what L2 still holds. Widths and addresses that 16-byte
packs do not fit go element by element through the same code.

Numerics: the mean of what is held, then deviations from it, their squares, and their own mean: what rounding took from
the first. Parts of a row are merged in float64, with the term between their means.

Bytes moved: x and y once; x twice for long rows that the ring does not take.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

at::Tensor layer_norm(const at::Tensor& x, int64_t width, const at::Tensor* weight, const at::Tensor* bias, double eps);

// Arguments are not converted by pybind11, which costs more than all checks; None is a null pointer.
static const at::Tensor* parameter(PyObject* given) {
    return given == Py_None ? nullptr : &THPVariable_Unpack(given);
}

static PyObject* python_layer_norm(PyObject*, PyObject* const* given, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    const auto is_parameter = [&](int i) { return given[i] == Py_None || THPVariable_Check(given[i]); };
    TORCH_CHECK_TYPE(count == 5 && THPVariable_Check(given[0]) && PyLong_Check(given[1]) && is_parameter(2) &&
                         is_parameter(3) && PyFloat_Check(given[4]),
                     "layer_norm takes x, a tensor, width, an int, weight and bias, tensors or None, and eps, a float");
    const int64_t width = PyLong_AsLongLong(given[1]);
    return THPVariable_Wrap(layer_norm(THPVariable_Unpack(given[0]), width, parameter(given[2]), parameter(given[3]),
                                       PyFloat_AS_DOUBLE(given[4])));
    END_HANDLE_TH_ERRORS
}

static PyMethodDef functions[] = {
    {"layer_norm", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(python_layer_norm)), METH_FASTCALL,
     "layer_norm(x, width, weight, bias, eps) -> y"},
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
#include <algorithm>
#include <atomic>
#include <climits>

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

template <typename T, int kSize>
struct alignas(kSize * sizeof(T)) Pack {  // one load or store
    T at[kSize];
};

// Parts of long rows are read and written when they have no further use: in passing, not to be kept by the caches.
// Short rows do without: they were slower with it (docs/notes/speed-of-light.md).
template <typename P>
__device__ P load_once(const P* p) {
    P pack;
    if constexpr (sizeof(P) == sizeof(uint4)) {
        const uint4 bits = __ldcs(reinterpret_cast<const uint4*>(p));
        memcpy(&pack, &bits, sizeof pack);
    } else {
        pack = *p;
    }
    return pack;
}

template <typename P>
__device__ void store_once(P* p, const P& pack) {
    if constexpr (sizeof(P) == sizeof(uint4)) {
        uint4 bits;
        memcpy(&bits, &pack, sizeof bits);
        __stcs(reinterpret_cast<uint4*>(p), bits);
    } else {
        *p = pack;
    }
}

// Makes the compiler convert 16-bit values again when they are written. It would keep them as fp32, in twice the
// registers.
template <typename P>
__device__ void keep_packed(P& pack) {
    if constexpr (sizeof(P) == sizeof(uint4)) {
        uint4& bits = reinterpret_cast<uint4&>(pack);
        asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
    }
}

// ------------------------------------------------------------------------------------------------------
// A row, or a part of it.

template <typename V>
__device__ V shuffled(V v, int mask) { return __shfl_xor_sync(kAllLanes, v, mask); }

struct Two {
    float first, second;
    __device__ Two operator+(const Two& other) const { return {first + other.first, second + other.second}; }
};
__device__ Two shuffled(const Two& v, int mask) { return {shuffled(v.first, mask), shuffled(v.second, mask)}; }

template <typename V>
__device__ V warp_sum(V value) {
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2) value = value + shuffled(value, mask);
    return value;
}

// The sum over the kThreads threads of a row, returned to all of them. `sums` is shared memory that no sum before
// the last one has used, so one barrier is enough.
template <int kThreads, typename V>
__device__ V row_sum(V value, V (&sums)[kThreads / kWarp]) {
    value = warp_sum(value);
    if constexpr (kThreads > kWarp) {
        const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
        if (lane == 0) sums[warp] = value;
        __syncthreads();
        value = warp_sum(lane < kThreads / kWarp ? sums[lane] : V{});
    }
    return value;
}

// ------------------------------------------------------------------------------------------------------
// Statistics.

// Of a row or a part of it: the mean, what rounding took from it, and the squares of deviations from both.
struct Moments {
    float mean, low, squares;
};

struct Statistics {
    float mean, low, inv_std;
};

template <typename T, int kSize>
__device__ float sum_of(const Pack<T, kSize>& x) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kSize; j++) sum += static_cast<float>(x.at[j]);
    return sum;
}

// -> deviations from `mean`, and their squares
template <typename T, int kSize>
__device__ Two deviations_of(const Pack<T, kSize>& x, float mean) {
    Two sums = {0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < kSize; j++) {
        const float d = static_cast<float>(x.at[j]) - mean;
        sums = {sums.first + d, fmaf(d, d, sums.second)};
    }
    return sums;
}

// What a thread holds of a row: kLoads packs, kThreads apart, as far as the row (or chunk) reaches. A place behind
// its end is loaded from its last pack: a load under a condition would let the compiler use the others first.
template <typename T, int kSize, int kThreads, int kLoads>
struct Held {
    using P = Pack<T, kSize>;
    P kept[kLoads];
    int packs;  // of the row or chunk
    int left;   // packs behind this thread's first; negative where it has none

    __device__ Held(const P* row, int64_t packs_left, bool in_passing)
        : packs(int(min(packs_left, int64_t(kThreads) * kLoads))), left(packs - 1 - int(threadIdx.x)) {
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
            const P* p = row + int(threadIdx.x) + min(k * kThreads, left);
            kept[k] = in_passing ? load_once(p) : *p;
        }
    }

    __device__ bool has(int k) const { return k * kThreads <= left; }

    __device__ float sum() const {
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
            const float more = sum_of(kept[k]);
            sum += has(k) ? more : 0.0f;
        }
        return sum;
    }

    // Deviations from `mean`, and their squares.
    __device__ Two deviations(float mean) {
        Two sums = {0.0f, 0.0f};
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
            keep_packed(kept[k]);
            const Two more = deviations_of(kept[k], mean);
            if (has(k)) sums = sums + more;
        }
        return sums;
    }

    // Of all threads together, for all of them.
    __device__ Moments moments(float (&sums)[kThreads / kWarp], Two (&deviations_of_warps)[kThreads / kWarp]) {
        const float width = float(packs) * kSize;
        const float mean = __fdividef(row_sum<kThreads>(sum(), sums), width);
        const Two all = row_sum<kThreads>(deviations(mean), deviations_of_warps);
        const float low = __fdividef(all.first, width);
        return {mean, low, fmaxf(all.second - low * all.first, 0.0f)};
    }

    // weight and bias may be null
    __device__ void write(P* out, const P* weight, const P* bias, const Statistics& row, bool in_passing) {
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
            keep_packed(kept[k]);
            if (!has(k)) continue;
            const int i = threadIdx.x + k * kThreads;
            float value[kSize];
#pragma unroll
            for (int j = 0; j < kSize; j++) {
                value[j] = ((static_cast<float>(kept[k].at[j]) - row.mean) - row.low) * row.inv_std;
            }
            if (weight) {
                const P scale = weight[i];
#pragma unroll
                for (int j = 0; j < kSize; j++) value[j] *= static_cast<float>(scale.at[j]);
            }
            if (bias) {
                const P shift = bias[i];
#pragma unroll
                for (int j = 0; j < kSize; j++) value[j] += static_cast<float>(shift.at[j]);
            }
            P result;
#pragma unroll
            for (int j = 0; j < kSize; j++) result.at[j] = static_cast<T>(value[j]);
            if (in_passing) {
                store_once(out + i, result);
            } else {
                out[i] = result;
            }
        }
    }
};

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

// For kernels that begin with wait_for_turn.
template <typename... Parameters, typename... Arguments>
void launch_early(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, cudaStream_t stream,
                  Arguments... arguments) {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = is_hoppers(reinterpret_cast<const void*>(kernel)) ? 1 : 0;
    C10_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

// ------------------------------------------------------------------------------------------------------
// A row in the registers of kThreads threads: of a block, or of a warp, of which a block then has two.

constexpr int kThreadsOfMultiprocessor = 1024;  // leaves each thread 64 registers

constexpr int block_of(int threads) { return threads == kWarp ? 2 * kWarp : threads; }

template <typename T, int kSize, int kThreads, int kLoads>
__global__ void __launch_bounds__(block_of(kThreads), kThreadsOfMultiprocessor / block_of(kThreads))
whole_rows(const Pack<T, kSize>* x, const Pack<T, kSize>* weight, const Pack<T, kSize>* bias, Pack<T, kSize>* y,
           int64_t rows, int packs, float eps) {
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    wait_for_turn();
    if (row >= rows) return;  // a whole warp, and only where warps do not wait for each other
    Held<T, kSize, kThreads, kLoads> held(x + row * packs, packs, false);
    __shared__ float sums[kThreads / kWarp];
    __shared__ Two deviations[kThreads / kWarp];
    const Moments m = held.moments(sums, deviations);
    held.write(y + row * packs, weight, bias,
               {m.mean, m.low, rsqrtf(__fdividef(m.squares, float(packs) * kSize) + eps)}, false);
}

// ------------------------------------------------------------------------------------------------------
// Parts of a row: a chunk in the registers of a block.

constexpr int kPartThreads = 512, kPartLoads = 8, kPartBlocks = 2;  // of a multiprocessor
constexpr int64_t kChunk = kPartThreads * kPartLoads;               // packs

// The moments of `parts` parts, of which the c-th has `count_of(c)` values and `moments_of(c)`, by a warp, for all of
// its lanes. In float64 sums of distances from any part's mean, `reference`, and of their squares are enough.
template <typename CountOf, typename MomentsOf>
__device__ Moments whole_of(const Moments& reference, int parts, double one_of_all, CountOf count_of,
                            MomentsOf moments_of) {
    const double origin = double(reference.mean) + reference.low;
    double distances = 0.0, squares = 0.0;
    for (int c = threadIdx.x % kWarp; c < parts; c += kWarp) {
        const Moments m = moments_of(c);
        const double count = count_of(c), distance = double(m.mean) + m.low - origin;
        distances += count * distance;
        squares += m.squares + count * distance * distance;
    }
    distances = warp_sum(distances);
    const double between = distances * one_of_all, mean = origin + between;
    const float high = static_cast<float>(mean);
    return {high, static_cast<float>(mean - high), static_cast<float>(warp_sum(squares) - distances * between)};
}

__device__ Statistics statistics_of(const Moments& m, double one_of_width, float eps) {
    return {m.mean, m.low, rsqrtf(fmaxf(m.squares * static_cast<float>(one_of_width), 0.0f) + eps)};
}

template <typename P>
__device__ const P* from(const P* parameter, int64_t i) { return parameter ? parameter + i : nullptr; }

// chunk_moments and write_chunks: for rows that the ring does not take; the second kernel waits for the first.

template <typename T, int kSize>
__global__ void __launch_bounds__(kPartThreads, kPartBlocks)
chunk_moments(const Pack<T, kSize>* x, Moments* of_chunks, int64_t packs, int chunks) {
    __shared__ float sums[kPartThreads / kWarp];
    __shared__ Two deviations[kPartThreads / kWarp];
    const int64_t row = blockIdx.x / chunks, first = blockIdx.x % chunks * kChunk;
    Held<T, kSize, kPartThreads, kPartLoads> held(x + row * packs + first, packs - first, false);
    const Moments m = held.moments(sums, deviations);
    if (threadIdx.x == 0) of_chunks[blockIdx.x] = m;
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kPartThreads, kPartBlocks)
write_chunks(const Pack<T, kSize>* x, const Pack<T, kSize>* weight, const Pack<T, kSize>* bias, Pack<T, kSize>* y,
             const Moments* of_chunks, int64_t packs, int chunks, double one_of_width, float eps) {
    const unsigned block = gridDim.x - 1 - blockIdx.x;  // from the end, which L2 still has
    const int64_t row = block / chunks, first = block % chunks * kChunk;
    Held<T, kSize, kPartThreads, kPartLoads> held(x + row * packs + first, packs - first, true);
    __shared__ Statistics of_row;
    if (threadIdx.x < kWarp) {
        const Moments* const parts = of_chunks + row * chunks;
        const auto count_of = [&](int c) { return int(min(packs - c * kChunk, kChunk)) * kSize; };
        const Moments all = whole_of(parts[0], chunks, one_of_width, count_of, [&](int c) { return parts[c]; });
        if (threadIdx.x == 0) of_row = statistics_of(all, one_of_width, eps);
    }
    __syncthreads();
    held.write(y + row * packs + first, from(weight, first), from(bias, first), of_row, true);
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

// x and y pass once: what L2 should let go of first.
__device__ __forceinline__ uint64_t evicted_first() {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
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

// Waits until at most `left`, 0 to 2, of this thread's bulk stores are not yet written.
__device__ __forceinline__ void wait_for_stores(int left) {
    if (left == 0) asm volatile("cp.async.bulk.wait_group 0;" : : : "memory");
    if (left == 1) asm volatile("cp.async.bulk.wait_group 1;" : : : "memory");
    if (left == 2) asm volatile("cp.async.bulk.wait_group 2;" : : : "memory");
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
// ring_rows: each row spread over a team of blocks, one for each multiprocessor. It is the ring of
// layernorm/speed_of_light.py: each warp has one task. A chunk of 8 KB arrives in a slot of a ring in shared memory, is
// summed, waits for the row's statistics, gives its place to y, is sent, and leaves the slot to the chunk that is
// kSlots further on. Writers that wait for statistics hold the row's first chunks in registers, whose slots are free
// the sooner.

// Warps by task, and one that has none, because setmaxnreg is for four at a time. 8 * 224 + 8 * 32 registers of 32
// lanes each are all 65,536.
constexpr int kWriters = 8, kSummers = 4, kMovers = 4;
constexpr int kLoader = kWriters + kSummers, kStorer = kLoader + 1, kPostman = kStorer + 1;
constexpr int kRingThreads = (kWriters + kSummers + kMovers) * kWarp;
constexpr int kWriterRegisters = 224, kSummerRegisters = 32, kMoverRegisters = 32;

constexpr int kRingPacks = 2;  // of a chunk, of a writer's lane
constexpr int kRingChunk = kWriters * kWarp * kRingPacks;
constexpr unsigned kChunkBytes = kRingChunk * sizeof(uint4);
constexpr int kSummed = kRingChunk / (kSummers * kWarp);  // packs of a chunk, of a summer's lane
constexpr int kRingChunks = 16;                           // of a row, of a block
constexpr int kSlice = kRingChunks * kRingChunk;          // packs
constexpr int kLanePacks = kRingChunks * kRingPacks;      // of a row, of a writer's lane
constexpr int kTaken = 4;                                 // of a row's chunks, into registers
constexpr int kSlots = 28;                                // 224 KB, all that barriers leave of shared memory
constexpr int kRingShared = kSlots * kChunkBytes;
constexpr int kLoadsUnderWay = 3, kStoresUnderWay = 2, kChunksAhead = 3;  // short queues, and what is next, into L2

// All of a row arrives before any of it is written. What is kept for a row is kept for two; the third is summed when
// writers have read what is kept of the first.
static_assert(kStoresUnderWay <= 2, "wait_for_stores knows no more");
static_assert(kLoadsUnderWay < kSlots && kSlots >= kRingChunks && kSlots < 2 * kRingChunks && kTaken <= kRingChunks);

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

// A pack of a parameter, or where there is none what changes nothing.
template <typename T, int kSize>
__device__ Pack<T, kSize> pack_or(const Pack<T, kSize>* parameter, int64_t i, float otherwise) {
    Pack<T, kSize> pack;
#pragma unroll
    for (int j = 0; j < kSize; j++) pack.at[j] = static_cast<T>(otherwise);
    keep_packed(pack);  // before and after: the two kinds meet in four registers, not in one for each element
    if (parameter) pack = parameter[i];
    keep_packed(pack);
    return pack;
}

template <typename T, int kSize>
__device__ Pack<T, kSize> normalised(const Pack<T, kSize>& x, const Pack<T, kSize>& weight,
                                     const Pack<T, kSize>& bias, const Statistics& row) {
    Pack<T, kSize> y;
#pragma unroll
    for (int j = 0; j < kSize; j++) {
        const float value = ((static_cast<float>(x.at[j]) - row.mean) - row.low) * row.inv_std;
        y.at[j] = static_cast<T>(fmaf(value, static_cast<float>(weight.at[j]), static_cast<float>(bias.at[j])));
    }
    return y;
}

// Mail: a block's moments for the other blocks of a row. Memory is all ones before.

using Word = unsigned long long;
constexpr Word kNoMail = ~0ull;  // two NaNs with all bits set, which word_of never makes
constexpr int kNapNs = 32;       // between two looks at the mail

__device__ Word word_of(float a, float b) {
    a = a == a ? a : __int_as_float(0x7fc00000);
    b = b == b ? b : __int_as_float(0x7fc00000);
    return static_cast<Word>(__float_as_uint(b)) << 32 | __float_as_uint(a);
}

__device__ void send(Word* mail, const Moments& m) {
    volatile Word* words = mail;
    words[0] = word_of(m.mean, m.low);
    words[1] = word_of(m.squares, 0.0f);
}

__device__ Two read_mail(const Word* mail) {
    const volatile Word* word = mail;
    Word bits = *word;
    while (bits == kNoMail) {
        __nanosleep(kNapNs);
        bits = *word;
    }
    return {__uint_as_float(static_cast<unsigned>(bits)), __uint_as_float(static_cast<unsigned>(bits >> 32))};
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kRingThreads, 1)
ring_rows(const Pack<T, kSize>* x, const Pack<T, kSize>* weight, const Pack<T, kSize>* bias, Pack<T, kSize>* y,
          Word* mail, int rows, int blocks, double one_of_width, float eps) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // bulk copies; nothing launches this elsewhere
    using P = Pack<T, kSize>;
    extern __shared__ __align__(128) unsigned char ring_memory[];  // other multiples of 16 work, and are slower
    P* const ring = reinterpret_cast<P*>(ring_memory);
    // Of a slot: x is there; x is summed, and y is in its place or writers have taken it; it may be loaded again.
    __shared__ uint64_t arrived[kSlots], written[kSlots], vacated[kSlots];
    __shared__ uint64_t summed[2], known[2];  // of even and odd rows: summers are done, all mail has come
    __shared__ Moments of_summers[2][kSummers];
    __shared__ Statistics of_row[2];
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
        make_barrier(&known[threadIdx.x - kSlots], 1);
    }
    __syncthreads();

    const auto row_of = [&](int turn) { return team + int64_t(turn) * teams; };
    // Where the chunk lies in x and y that is the team's `number`th.
    const auto place_of = [&](int number) {
        return ((row_of(number / kRingChunks) * blocks + block) * kRingChunks + number % kRingChunks) * kRingChunk;
    };
    constexpr float kSliceCount = float(kSlice) * kSize;

    if (warp < kWriters) {
        take_registers<kWriterRegisters>();
        const int mine = warp * kRingPacks * kWarp + lane;  // in a chunk
        const auto column = [](int k) { return k / kRingPacks * kRingChunk + k % kRingPacks * kWarp; };
        P scale[kLanePacks];
#pragma unroll
        for (int k = 0; k < kLanePacks; k++) {
            scale[k] = pack_or(weight, int64_t(block) * kSlice + mine + column(k), 1.0f);
        }
        P shift[kRingPacks];  // of one chunk; L2 has the others
        const P* const b = from(bias, int64_t(block) * kSlice + mine);
#pragma unroll
        for (int i = 0; i < kRingPacks; i++) shift[i] = pack_or(b, column(i), 0.0f);
        Place place;
        const auto leave = [&]() {
            __syncwarp();
            if (lane == 0) arrive(&written[place.slot]);
            place.advance();
        };
#pragma unroll 1
        for (int turn = 0; turn < turns; turn++) {
            P taken[kTaken * kRingPacks];
#pragma unroll
            for (int chunk = 0; chunk < kTaken; chunk++) {
                wait(&arrived[place.slot], place.parity);
#pragma unroll
                for (int i = 0; i < kRingPacks; i++) {
                    taken[chunk * kRingPacks + i] = ring[place.slot * kRingChunk + mine + i * kWarp];
                }
                leave();
            }
            // Once the row's statistics are known, all of it has arrived, so no other chunk is waited for.
            wait(&known[turn % 2], turn / 2 % 2);
            const Statistics row = of_row[turn % 2];
            P* const out = y + place_of(turn * kRingChunks) + mine;
#pragma unroll
            for (int chunk = 0; chunk < kRingChunks; chunk++) {
                P* const at = ring + place.slot * kRingChunk + mine;
#pragma unroll
                for (int i = 0; i < kRingPacks; i++) {
                    const int k = chunk * kRingPacks + i;
                    keep_packed(scale[k]);
                    keep_packed(shift[i]);
                    if (chunk < kTaken) {
                        keep_packed(taken[k]);
                        store_once(out + column(k), normalised(taken[k], scale[k], shift[i], row));
                    } else {
                        at[i * kWarp] = normalised(at[i * kWarp], scale[k], shift[i], row);
                    }
                    shift[i] = pack_or(b, column((k + kRingPacks) % kLanePacks), 0.0f);
                }
                if (chunk < kTaken) continue;
                show_to_copies();
                leave();
            }
        }
    } else if (warp < kLoader) {
        leave_registers<kSummerRegisters>();
        const int summer = warp - kWriters;
        const P* const mine = ring + summer * kSummed * kWarp + lane;
        Place place;
#pragma unroll 1
        for (int turn = 0; turn < turns; turn++) {
            // A lane's values are summed around the mean of those of its first chunk. That is as good as their own: it
            // costs four bits of the squares at most (Cauchy, of kRingChunks chunks), and next to none where they are
            // alike.
            float origin;
            Two sums = {0.0f, 0.0f};
#pragma unroll 1
            for (int chunk = 0; chunk < kRingChunks; chunk++) {
                wait(&arrived[place.slot], place.parity);
                P part[kSummed];
#pragma unroll
                for (int i = 0; i < kSummed; i++) part[i] = mine[place.slot * kRingChunk + i * kWarp];
                __syncwarp();
                if (lane == 0) arrive(&written[place.slot]);
                place.advance();
                if (chunk == 0) {
                    origin = 0.0f;
#pragma unroll
                    for (int i = 0; i < kSummed; i++) origin += sum_of(part[i]) * (1.0f / (kSummed * kSize));
                }
#pragma unroll
                for (int i = 0; i < kSummed; i++) {
                    keep_packed(part[i]);
                    sums = sums + deviations_of(part[i], origin);
                }
            }
            constexpr float kLaneCount = float(kRingChunks) * kSummed * kSize;
            const float low = sums.first * (1.0f / kLaneCount);
            const Moments own = {origin, low, fmaf(-low, sums.first, sums.second)};
            const Moments reference = {__shfl_sync(kAllLanes, origin, 0), 0.0f, 0.0f};
            const Moments all = whole_of(reference, kWarp, 1.0 / (kLaneCount * kWarp), [&](int) { return kLaneCount; },
                                         [&](int) { return own; });
            if (lane == 0) {
                of_summers[turn % 2][summer] = all;
                arrive(&summed[turn % 2]);
            }
        }
    } else {
        leave_registers<kMoverRegisters>();
        const int chunks = turns * kRingChunks;
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
                bulk_load(ring + place.slot * kRingChunk, x + place_of(number), kChunkBytes, &arrived[place.slot],
                          once);
                const int later = number + kChunksAhead;
                if (later < chunks) bulk_prefetch(x + place_of(later), kChunkBytes, once);
                place.advance();
            }
        } else if (warp == kStorer && lane == 0) {
            const uint64_t once = evicted_first();
            Place place;
            int oldest = 0, under_way = 0;
            const auto leave_oldest = [&]() {
                wait_for_stores(--under_way);
                arrive(&vacated[oldest]);
                oldest = oldest + 1 < kSlots ? oldest + 1 : 0;
            };
#pragma unroll 1
            for (int number = 0; number < chunks; number++) {
                // No y to send yet: slots are vacated as soon as they can be. The loader never waits for the next y.
                while (under_way > 0 && !is_over(&written[place.slot], place.parity)) leave_oldest();
                wait(&written[place.slot], place.parity);
                if (number % kRingChunks < kTaken) {  // x is in the writers' registers
                    while (under_way > 0) leave_oldest();
                    arrive(&vacated[place.slot]);
                    place.advance();
                    oldest = place.slot;
                    continue;
                }
                bulk_store(y + place_of(number), ring + place.slot * kRingChunk, kChunkBytes, once);
                under_way++;
                if (under_way > kStoresUnderWay) leave_oldest();
                place.advance();
            }
            wait_for_stores(0);
        } else if (warp == kPostman) {
#pragma unroll 1
            for (int turn = 0; turn < turns; turn++) {
                const int which = turn % 2;
                wait(&summed[which], turn / 2 % 2);
                Word* const box = mail + 2 * row_of(turn) * blocks;
                const Moments own = whole_of(
                    of_summers[which][0], kSummers, 1.0 / kSliceCount, [&](int) { return kSliceCount / kSummers; },
                    [&](int c) { return of_summers[which][c]; });
                if (lane == 0) send(box + 2 * block, own);
                const Moments all = whole_of(own, blocks, one_of_width, [&](int) { return kSliceCount; }, [&](int c) {
                    const Two means = read_mail(box + 2 * c);
                    return Moments{means.first, means.second, read_mail(box + 2 * c + 1).first};
                });
                if (lane == 0) {
                    of_row[which] = statistics_of(all, one_of_width, eps);
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
    float eps;
    c10::Device device;
    cudaStream_t stream;
};

// Not through torch's dispatcher, which each call would pay for.
at::Tensor empty(at::IntArrayRef sizes, at::ScalarType type, c10::Device device) {
    return at::detail::empty_cuda(sizes, type, device, std::nullopt);
}

template <typename T, int kSize, int kThreads, int kLoads>
void whole(const Call& call) {
    using P = Pack<T, kSize>;
    const int rows_of_block = block_of(kThreads) / kThreads;
    const int64_t blocks = (call.rows + rows_of_block - 1) / rows_of_block;
    TORCH_CHECK(blocks <= INT_MAX, "layer_norm: ", call.rows, " rows are more than a grid can have");
    launch_early(whole_rows<T, kSize, kThreads, kLoads>, dim3(static_cast<unsigned>(blocks)),
                 dim3(kThreads, rows_of_block), call.stream, static_cast<const P*>(call.x),
                 static_cast<const P*>(call.weight), static_cast<const P*>(call.bias), static_cast<P*>(call.y),
                 call.rows, static_cast<int>(call.width / kSize), call.eps);
}

// How many blocks of ring_rows can run at the same time, so that they may wait for each other; 0 where they cannot be.
template <typename T, int kSize>
int64_t ring_blocks(int device) {
    const auto attribute = [&](cudaDeviceAttr which) {
        int value = 0;
        C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
        return value;
    };
    const auto kernel = ring_rows<T, kSize>;
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

// Whether the ring could take the rows, with a block on nearly every multiprocessor; then it has.
template <typename T, int kSize>
bool ring(const Call& call) {
    using P = Pack<T, kSize>;
    const int64_t packs = call.width / kSize, across = packs / kSlice;
    if (packs % kSlice != 0 || call.rows > INT_MAX / kRingChunks) return false;
    const int64_t resident = ring_blocks<T, kSize>(call.device.index());
    const int64_t grid = std::min(call.rows, resident / across) * across;
    if (grid == 0 || grid * 10 < resident * 9) return false;
    const at::Tensor words = empty({2 * call.rows * across}, at::kLong, call.device);
    auto* mail = static_cast<Word*>(words.data_ptr());
    C10_CUDA_CHECK(cudaMemsetAsync(mail, 0xff, words.nbytes(), call.stream));
    const auto *x = static_cast<const P*>(call.x), *weight = static_cast<const P*>(call.weight);
    const auto* bias = static_cast<const P*>(call.bias);
    auto* y = static_cast<P*>(call.y);
    int rows = static_cast<int>(call.rows), blocks = static_cast<int>(across);
    double one_of_width = 1.0 / call.width;
    float eps = call.eps;
    void* arguments[] = {&x, &weight, &bias, &y, &mail, &rows, &blocks, &one_of_width, &eps};
    C10_CUDA_CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&ring_rows<T, kSize>),
                                               dim3(static_cast<unsigned>(grid)), dim3(kRingThreads), arguments,
                                               kRingShared, call.stream));
    return true;
}

template <typename T, int kSize>
void split(const Call& call) {
    using P = Pack<T, kSize>;
    const int64_t packs = call.width / kSize, chunks = (packs + kChunk - 1) / kChunk, blocks = call.rows * chunks;
    TORCH_CHECK(blocks <= INT_MAX, "layer_norm: ", blocks, " chunks are more than a grid can have");
    const at::Tensor scratch = empty({3 * blocks}, at::kFloat, call.device);
    auto* of_chunks = static_cast<Moments*>(scratch.data_ptr());
    chunk_moments<T, kSize><<<static_cast<unsigned>(blocks), kPartThreads, 0, call.stream>>>(
        static_cast<const P*>(call.x), of_chunks, packs, static_cast<int>(chunks));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    write_chunks<T, kSize><<<static_cast<unsigned>(blocks), kPartThreads, 0, call.stream>>>(
        static_cast<const P*>(call.x), static_cast<const P*>(call.weight), static_cast<const P*>(call.bias),
        static_cast<P*>(call.y), of_chunks, packs, static_cast<int>(chunks),
        1.0 / call.width, call.eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// The one place that chooses: element size of a load, threads of a row, and packs that each of them holds.
template <typename T>
void choose(const Call& call) {
    constexpr int kSize = sizeof(uint4) / sizeof(T);
    const auto bits = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.weight) |
                      reinterpret_cast<uintptr_t>(call.bias) | reinterpret_cast<uintptr_t>(call.y);
    if (bits % sizeof(uint4) || call.width % kSize) {
        if (call.width <= 128) return whole<T, 1, kWarp, 4>(call);
        if (call.width <= 2048) return whole<T, 1, 256, 8>(call);
        return split<T, 1>(call);
    }
    const int64_t packs = call.width / kSize;
    if (packs <= 128) return whole<T, kSize, kWarp, 4>(call);
    if (packs <= 256) return whole<T, kSize, 128, 2>(call);
    if (packs <= 512) return whole<T, kSize, 128, 4>(call);
    if (packs <= 1024) return whole<T, kSize, 256, 4>(call);
    if (packs <= 2048) return whole<T, kSize, 512, 4>(call);
    if (packs <= 4096) {  // 16-bit values take more registers once converted
        if constexpr (sizeof(T) == 4) return whole<T, kSize, 512, 8>(call);
        return whole<T, kSize, 1024, 4>(call);
    }
    if (!ring<T, kSize>(call)) split<T, kSize>(call);
}

void check_parameter(const char* name, const at::Tensor* parameter, const at::Tensor& x, int64_t width) {
    if (!parameter) return;
    TORCH_CHECK(parameter->device() == x.device() && parameter->scalar_type() == x.scalar_type() &&
                    parameter->numel() == width && parameter->is_contiguous(),
                "layer_norm: ", name, " must be contiguous, with ", width, " elements of ", x.scalar_type(), " on ",
                x.device(), "; got ", parameter->sizes(), " of ", parameter->scalar_type(), " on ",
                parameter->device());
}

at::Tensor layer_norm(const at::Tensor& x, int64_t width, const at::Tensor* weight, const at::Tensor* bias,
                      double eps) {
    TORCH_CHECK(x.is_cuda(), "layer_norm: x must be a CUDA tensor, got one on ", x.device());
    TORCH_CHECK(width > 0 && x.numel() % width == 0, "layer_norm: x has ", x.numel(),
                " elements, which are not rows of ", width);
    check_parameter("weight", weight, x, width);
    check_parameter("bias", bias, x, width);
    const c10::cuda::CUDAGuard guard(x.device());
    if (!x.is_contiguous()) return layer_norm(x.contiguous(), width, weight, bias, eps);
    at::Tensor y = empty(x.sizes(), x.scalar_type(), x.device());
    if (y.numel() == 0) return y;  // a launch of no blocks is an error

    const auto pointer = [](const at::Tensor* t) { return t ? t->data_ptr() : nullptr; };
    const Call call = {x.data_ptr(), pointer(weight), pointer(bias),           y.data_ptr(), x.numel() / width,
                       width,        static_cast<float>(eps), x.device(), c10::cuda::getCurrentCUDAStream()};
    switch (x.scalar_type()) {
        case torch::kFloat: choose<float>(call); break;
        case torch::kHalf: choose<c10::Half>(call); break;
        case torch::kBFloat16: choose<c10::BFloat16>(call); break;
        default: TORCH_CHECK(false, "layer_norm: x must be float32, float16 or bfloat16, got ", x.scalar_type());
    }
    return y;
}
"""

# Host code is not optimised unless it is asked for. sm_90a by name: torch asks for the GPU's plain architecture, which
# lacks setmaxnreg. Other GPUs run what is for sm_80, or compile it when it is loaded.
layer_norm = load_inline(
    name="layernorm_options_read_once",
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
    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True):
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.weight = nn.Parameter(torch.ones(shape)) if elementwise_affine else None
        self.bias = nn.Parameter(torch.zeros(shape)) if elementwise_affine and bias else None
        self.width = torch.Size(shape).numel()
        self.eps = float(eps)

    def forward(self, x):
        parameters = self._parameters  # skips the search that self.weight would make
        return layer_norm(x, self.width, parameters.get("weight"), parameters.get("bias"), self.eps)
