"""RMSNorm's training step, each element read once: rows in registers, columns' sums in registers.

The idea: the backward needs x and dy for the row's mean of g xhat, for dx, and for the columns' sums. A block keeps
its row of both in registers and goes on to the next row that is its own with the same threads on the same columns, so
that dweight grows in registers, too. The next rows are on their way while one is summed: in a ring of bulk copies in
shared memory on Hopper and later, where two blocks of a cluster share a long row, or one row in registers. A second
kernel adds up one row of partial sums for each block, in a fixed order. Rows that do not fit are cut into chunks, a
block for each: one kernel sums a chunk, the next adds up the chunks of its row and writes; in the backward that block
goes down many rows, for the sake of the columns.

Numerics: fp16 and bf16 are widened when they are read and narrowed when they are written. All sums are fp32, and fp64
for fp64: a few dozen terms in a thread, then a tree.

Bytes moved: forward x and y once, backward x, dy and dx once; for rows over 16,384 (backward 8,192, by the ring
16,384) values x and dy twice.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/python_variable.h>

std::tuple<at::Tensor, at::Tensor> forward(at::Tensor x, at::Tensor weight, double eps);
std::tuple<at::Tensor, at::Tensor> backward(at::Tensor dy, at::Tensor x, at::Tensor weight, at::Tensor inv_rms);

struct RMSNorm : torch::autograd::Function<RMSNorm> {
    static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                              double eps) {
        auto [y, inv_rms] = ::forward(x, weight, eps);
        context->save_for_backward({x, weight, std::move(inv_rms)});
        return y;
    }

    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list dy) {
        TORCH_CHECK(!at::GradMode::is_enabled(),
                    "rms_norm can be differentiated once, but its backward was called with create_graph=True");
        const auto saved = context->get_saved_variables();
        auto [dx, dweight] = ::backward(dy[0], saved[0], saved[1], saved[2]);
        return {std::move(dx), std::move(dweight), at::Tensor()};
    }
};

static PyObject* python_rms_norm(PyObject*, PyObject* const* given, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    TORCH_CHECK_TYPE(count == 3 && THPVariable_Check(given[0]) && THPVariable_Check(given[1]) &&
                         PyFloat_Check(given[2]),
                     "rms_norm takes the tensors x and weight, and eps, a float");
    return THPVariable_Wrap(
        RMSNorm::apply(THPVariable_Unpack(given[0]), THPVariable_Unpack(given[1]), PyFloat_AS_DOUBLE(given[2])));
    END_HANDLE_TH_ERRORS
}

static PyMethodDef functions[] = {
    {"rms_norm", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(python_rms_norm)), METH_FASTCALL,
     "rms_norm(x, weight, eps) -> y"},
    {}};

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    if (PyModule_AddFunctions(m.ptr(), functions) != 0) throw py::error_already_set();
}
"""

CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <algorithm>
#include <climits>
#include <type_traits>

constexpr int kWarp = 32, kMaxThreads = 512;
constexpr unsigned kAllLanes = 0xffffffffu;

// Rows of so many packs have one of them in a thread. Longer ones have more: what a warp does for each row beside its
// values takes more instructions than a pack.
constexpr int kShortPacks = 64;

// Packs of a row in a thread's registers, at most. A pack of 8 values of 16 bits fills 8, one of 4 values of 32 bits 4.
constexpr int forward_packs(int size) { return size == 8 ? 4 : 8; }
constexpr int backward_packs(int size) { return size == 8 ? 2 : 4; }

constexpr int alignment(int bytes) { return bytes >= 16 ? 16 : bytes; }

template <typename T, int kSize>
struct alignas(alignment(kSize * sizeof(T))) Pack {  // one load or store, two of an fp32 weight beside 16 bits
    T at[kSize];
};

// What sums are kept in.
template <typename T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ __forceinline__ float wide(float v) { return v; }
__device__ __forceinline__ double wide(double v) { return v; }
__device__ __forceinline__ float wide(__half v) { return __half2float(v); }
__device__ __forceinline__ float wide(__nv_bfloat16 v) { return __bfloat162float(v); }

__device__ __forceinline__ void narrow(float v, float& to) { to = v; }
__device__ __forceinline__ void narrow(double v, double& to) { to = v; }
__device__ __forceinline__ void narrow(float v, __half& to) { to = __float2half_rn(v); }
__device__ __forceinline__ void narrow(float v, __nv_bfloat16& to) { to = __float2bfloat16_rn(v); }

template <typename T>
__device__ T warp_sum(T value) {
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(kAllLanes, value, mask);
    return value;
}

constexpr int kMaxWarps = kMaxThreads / kWarp;

// The sum over the block's threads, returned to all of them. `of_warps` is shared memory that nobody reads any more.
template <typename T>
__device__ T block_sum(T value, T* of_warps) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    value = warp_sum(value);
    if (lane == 0) of_warps[warp] = value;
    __syncthreads();
    return warp_sum(lane < blockDim.x / kWarp ? of_warps[lane] : T(0));
}

template <typename T>
__device__ T block_sum(T value) {
    __shared__ T of_warps[kMaxWarps];
    __syncthreads();  // the previous sums may still be being read
    return block_sum(value, of_warps);
}

// kPacks packs of a row for each thread, blockDim.x apart, as they lie in memory. A place behind the row's end has its
// last pack: a load under a condition would let the compiler use the others first.
template <typename T, int kSize, int kPacks>
struct Loaded {
    Pack<T, kSize> packs[kPacks];

    __device__ Loaded(const T* from, int count) { load(from, count); }

    __device__ void load(const T* from, int count) {
        const auto* in = reinterpret_cast<const Pack<T, kSize>*>(from);
#pragma unroll
        for (int k = 0; k < kPacks; k++) packs[k] = in[min(int(threadIdx.x + k * blockDim.x), count - 1)];
    }
};

// The same as sums are kept.
template <typename T, int kSize, int kPacks>
struct Held {
    Sum<T> kept[kPacks][kSize];

    __device__ Held(const Loaded<T, kSize, kPacks>& loaded) {
#pragma unroll
        for (int k = 0; k < kPacks; k++) {
#pragma unroll
            for (int j = 0; j < kSize; j++) kept[k][j] = wide(loaded.packs[k].at[j]);
        }
    }

    __device__ Held(const T* from, int packs) : Held(Loaded<T, kSize, kPacks>(from, packs)) {}

    // use(k, j), value by value, for what this thread holds.
    template <typename Use>
    __device__ static void for_each(int packs, Use use) {
#pragma unroll
        for (int k = 0; k < kPacks; k++) {
            const int i = threadIdx.x + k * blockDim.x;
            if (i >= packs) continue;
#pragma unroll
            for (int j = 0; j < kSize; j++) use(k, j);
        }
    }

    __device__ void store(T* to, int packs) const {
        auto* out = reinterpret_cast<Pack<T, kSize>*>(to);
#pragma unroll
        for (int k = 0; k < kPacks; k++) {
            const int i = threadIdx.x + k * blockDim.x;
            if (i >= packs) continue;
            Pack<T, kSize> pack;
#pragma unroll
            for (int j = 0; j < kSize; j++) narrow(kept[k][j], pack.at[j]);
            out[i] = pack;
        }
    }
};

// ------------------------------------------------------------------------------------------------------
// Rows that a block holds.

template <typename T, typename W, int kSize, int kPacks, typename A = Sum<T>>
__global__ void __launch_bounds__(kMaxThreads)
forward_rows(const T* x, const W* weight, T* y, A* inv_rms_of, int packs, A eps) {
    const int64_t start = int64_t(blockIdx.x) * packs * kSize;
    Held<T, kSize, kPacks> held(x + start, packs);
    A squares = 0;
    held.for_each(packs, [&](int k, int j) { squares += held.kept[k][j] * held.kept[k][j]; });
    const A inv_rms = A(1) / sqrt(block_sum(squares) / (A(packs) * kSize) + eps);
    const Held<W, kSize, kPacks> scale(weight, packs);
    held.for_each(packs, [&](int k, int j) { held.kept[k][j] *= inv_rms * scale.kept[k][j]; });
    held.store(y + start, packs);
    if (threadIdx.x == 0) inv_rms_of[blockIdx.x] = inv_rms;
}

// One row of the backward: dx, and what the row adds to dweight. `mean_of(sum)` is the mean over the row of what the
// threads' sums say; when it is known all of them have their parts.
template <typename T, typename W, int kSize, int kPacks, typename A, typename MeanOf>
__device__ __forceinline__ void backward_row(Held<T, kSize, kPacks> upstream, Held<T, kSize, kPacks> values,
                                             const Loaded<W, kSize, kPacks>& scale, A inv_rms, int packs, T* dx,
                                             A (&dweight)[kPacks][kSize], MeanOf mean_of) {
    A sum = 0;
    upstream.for_each(packs, [&](int k, int j) {
        A& xhat = values.kept[k][j];
        A& g = upstream.kept[k][j];
        xhat *= inv_rms;
        dweight[k][j] += g * xhat;
        g *= wide(scale.packs[k].at[j]);
        sum += g * xhat;
    });
    const A mean = mean_of(sum);
    upstream.for_each(packs, [&](int k, int j) {
        A& g = upstream.kept[k][j];
        g = inv_rms * (g - values.kept[k][j] * mean);
    });
    upstream.store(dx, packs);
}

template <typename A, int kPacks, int kSize>
__device__ __forceinline__ void write_columns(const A (&dweight)[kPacks][kSize], A* to, int packs) {
    Held<A, kSize, kPacks>::for_each(packs, [&](int k, int j) {
        to[(threadIdx.x + k * blockDim.x) * kSize + j] = dweight[k][j];
    });
}

template <typename T, typename W, int kSize, int kPacks, typename A = Sum<T>>
__global__ void __launch_bounds__(kMaxThreads)
backward_rows(const T* dy, const T* x, const W* weight, const A* inv_rms_of, T* dx, A* dweight_of, int64_t rows,
              int packs) {
    __shared__ A of_warps[2][kMaxWarps];
    const int64_t width = int64_t(packs) * kSize;
    const Loaded<W, kSize, kPacks> scale(weight, packs);
    A dweight[kPacks][kSize] = {};
    // The next row is on its way while this one is summed.
    Loaded<T, kSize, kPacks> next_dy(dy + blockIdx.x * width, packs), next_x(x + blockIdx.x * width, packs);
    unsigned turn = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const Held<T, kSize, kPacks> upstream(next_dy), values(next_x);
        const int64_t next = row + gridDim.x;
        if (next < rows) {
            next_dy.load(dy + next * width, packs);
            next_x.load(x + next * width, packs);
        }
        backward_row(upstream, values, scale, inv_rms_of[row], packs, dx + row * width, dweight,
                     [&](A sum) { return block_sum(sum, of_warps[turn++ % 2]) / width; });
    }
    write_columns(dweight, dweight_of + blockIdx.x * width, packs);
}

// ------------------------------------------------------------------------------------------------------
// The same backward where bulk copies are: rows of dy and x wait in the slots of a ring in shared memory, so that more
// of them are on their way than registers have room for. Load 2 n is dy of the block's row n, load 2 n + 1 its x. A
// long row is for the two blocks of a cluster, a half each.

constexpr int kMostSlots = 12, kLeastSlots = 3;  // dy and x of one row, and dy of the next

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void make_barrier(uint64_t* barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void wait(uint64_t* barrier, unsigned parity) {
    unsigned over = 0;
    while (!over) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                     : "=r"(over) : "r"(shared_address(barrier)), "r"(parity) : "memory");
    }
}

__device__ __forceinline__ void bulk_load(void* to, const void* from, unsigned bytes, uint64_t* arrived) {
    const unsigned barrier = shared_address(arrived);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 : : "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

// The two blocks of a cluster write each other's sums into their shared memory, in words that say of which turn they
// are, from 1 on. `mail` is for two turns: who writes of the next has read of this one.
using Mail = unsigned long long;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__device__ __forceinline__ void cluster_barrier() { cooperative_groups::this_cluster().sync(); }

// The sum of both blocks, `sum` being this one's.
__device__ __forceinline__ float sum_of_both(float sum, Mail (&mail)[2], unsigned turn) {
    Mail* const here = &mail[turn % 2];
    if (threadIdx.x == 0) {
        Mail* const there = cooperative_groups::this_cluster().map_shared_rank(here, 1 - blockIdx.x % 2);
        atomicExch(there, static_cast<Mail>(turn) << 32 | __float_as_uint(sum));
    }
    Mail word = 0;
    if (threadIdx.x % kWarp == 0) {  // atomic, as what the other block writes meanwhile has to be
        while (word >> 32 != turn) word = atomicAdd(here, Mail(0));
    }
    return sum + __shfl_sync(kAllLanes, __uint_as_float(static_cast<unsigned>(word)), 0);
}
#endif

// Threads of a block, at most, and blocks whose registers share a multiprocessor.
constexpr int ring_threads(int packs) { return packs == 1 ? 256 : kMaxThreads; }
constexpr int ring_blocks(int packs) { return packs == 1 ? 4 : 1; }
constexpr int kMostTogether = 4;  // blocks on a multiprocessor, each of which leaves a row of partial sums

template <typename T, typename W, int kSize, int kPacks, int kBlocks>
__global__ void __launch_bounds__(ring_threads(kPacks), ring_blocks(kPacks))
backward_ring(const T* dy, const T* x, const W* weight, const float* inv_rms_of, T* dx, float* dweight_of, int64_t rows,
              int packs, int slots) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // nothing launches this elsewhere
    using H = Held<T, kSize, kPacks>;
    extern __shared__ __align__(128) unsigned char ring[];
    __shared__ uint64_t arrived[kMostSlots];
    __shared__ float of_warps[2][kMaxWarps];
    __shared__ Mail mail[2];
    const int64_t width = int64_t(packs) * kSize, team = blockIdx.x / kBlocks, teams = gridDim.x / kBlocks;
    const int part = (packs + kBlocks - 1) / kBlocks, begin = blockIdx.x % kBlocks * part;
    const int count = min(part, packs - begin), column = begin * kSize;  // of this block
    const unsigned of_slot = part * kSize * sizeof(T), bytes = count * kSize * sizeof(T);
    int64_t next = team;  // row of the next load
    bool next_is_x = false;
    const auto ask = [&](int slot) {
        const T* from = next_is_x ? x : dy;
        if (next < rows) bulk_load(ring + slot * of_slot, from + next * width + column, bytes, &arrived[slot]);
        if (next_is_x) next += teams;
        next_is_x = !next_is_x;
    };
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < slots; slot++) make_barrier(&arrived[slot]);
        asm volatile("fence.proxy.async.shared::cta;" : : : "memory");  // copies see the barriers
        for (int slot = 0; slot < slots; slot++) ask(slot);
        mail[0] = mail[1] = 0;
    }
    constexpr bool kHoldsScale = kPacks * kSize <= 16;  // in registers; else it is read for each row
    Loaded<W, kSize, kPacks> scale(weight + column, count);
    float dweight[kPacks][kSize] = {};
    float next_inv_rms = inv_rms_of[team];
    if constexpr (kBlocks > 1) cluster_barrier();  // before the other block writes here
    else __syncthreads();
    int slot = 0;
    unsigned parity = 0;
    const auto take = [&] {  // this thread's part of what has come into the slot
        wait(&arrived[slot], parity);
        const H held(reinterpret_cast<const T*>(ring + slot * of_slot), count);
        if (++slot == slots) {
            slot = 0;
            parity ^= 1;
        }
        return held;
    };
    unsigned turn = 0;
    for (int64_t row = team; row < rows; row += teams) {
        const float inv_rms = next_inv_rms;
        if (row + teams < rows) next_inv_rms = inv_rms_of[row + teams];
        const int of_dy = slot;
        const H upstream = take();
        const int of_x = slot;
        const H values = take();
        if constexpr (!kHoldsScale) scale.load(weight + column, count);
        backward_row(upstream, values, scale, inv_rms, count, dx + row * width + column, dweight, [&](float sum) {
            turn++;
            sum = block_sum(sum, of_warps[turn % 2]);
            if constexpr (kBlocks > 1) sum = sum_of_both(sum, mail, turn);
            if (threadIdx.x == 0) {
                ask(of_dy);
                ask(of_x);
            }
            return sum / width;
        });
    }
    write_columns(dweight, dweight_of + team * width + column, count);
    if constexpr (kBlocks > 1) cluster_barrier();  // the other block may still be writing here
#endif
}

// ------------------------------------------------------------------------------------------------------
// Rows in chunks of kChunk packs. Blocks cannot wait for each other: a second kernel does instead. It begins with what
// the first one read last, since that is still in L2.

constexpr int kChunkThreads = 256, kChunkPacks = 4, kChunk = kChunkThreads * kChunkPacks;
constexpr int kGroupBlocks = 2;  // of the backward for each multiprocessor, at least, where there are rows enough

__device__ int packs_of(int64_t chunk, int64_t packs) {
    const int64_t left = packs - chunk * kChunk;
    return left < kChunk ? left : kChunk;
}

// The sum over a row of what its chunks wrote down.
template <typename T>
__device__ T row_sum(const T* of_chunks, int64_t row, int64_t chunks) {
    T sum = 0;
    for (int64_t c = threadIdx.x; c < chunks; c += kChunkThreads) sum += of_chunks[row * chunks + c];
    return block_sum(sum);
}

template <typename T, int kSize, typename A = Sum<T>>
__global__ void __launch_bounds__(kChunkThreads)
chunk_squares(const T* x, A* squares_of, int64_t packs, int64_t chunks) {
    const int64_t row = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
    const int count = packs_of(chunk, packs);
    const Held<T, kSize, kChunkPacks> held(x + (row * packs + chunk * kChunk) * kSize, count);
    A squares = 0;
    held.for_each(count, [&](int k, int j) { squares += held.kept[k][j] * held.kept[k][j]; });
    squares = block_sum(squares);
    if (threadIdx.x == 0) squares_of[blockIdx.x] = squares;
}

template <typename T, typename W, int kSize, typename A = Sum<T>>
__global__ void __launch_bounds__(kChunkThreads)
forward_chunks(const T* x, const W* weight, T* y, A* inv_rms_of, const A* squares_of, int64_t packs, int64_t chunks,
               A eps) {
    const int64_t place = gridDim.x - 1 - blockIdx.x, row = place / chunks, chunk = place % chunks;
    const int count = packs_of(chunk, packs);
    const int64_t column = chunk * kChunk * kSize, start = row * packs * kSize + column;
    Held<T, kSize, kChunkPacks> held(x + start, count);
    const Held<W, kSize, kChunkPacks> scale(weight + column, count);
    const A inv_rms = A(1) / sqrt(row_sum(squares_of, row, chunks) / (A(packs) * kSize) + eps);
    held.for_each(count, [&](int k, int j) { held.kept[k][j] *= inv_rms * scale.kept[k][j]; });
    held.store(y + start, count);
    if (chunk == 0 && threadIdx.x == 0) inv_rms_of[row] = inv_rms;
}

template <typename T, typename W, int kSize, typename A = Sum<T>>
__global__ void __launch_bounds__(kChunkThreads)
chunk_sums(const T* dy, const T* x, const W* weight, const A* inv_rms_of, A* sum_of, int64_t packs, int64_t chunks) {
    const int64_t row = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
    const int64_t column = chunk * kChunk * kSize, start = row * packs * kSize + column;
    const int count = packs_of(chunk, packs);
    const Held<T, kSize, kChunkPacks> upstream(dy + start, count), values(x + start, count);
    const Held<W, kSize, kChunkPacks> scale(weight + column, count);
    const A inv_rms = inv_rms_of[row];
    A sum = 0;
    upstream.for_each(count, [&](int k, int j) {
        sum += upstream.kept[k][j] * scale.kept[k][j] * (values.kept[k][j] * inv_rms);
    });
    sum = block_sum(sum);
    if (threadIdx.x == 0) sum_of[blockIdx.x] = sum;
}

// Block (chunk, group) has the columns of one chunk in every row of one group.
template <typename T, typename W, int kSize, typename A = Sum<T>>
__global__ void __launch_bounds__(kChunkThreads)
backward_chunks(const T* dy, const T* x, const W* weight, const A* inv_rms_of, const A* sum_of, T* dx, A* dweight_of,
                int64_t rows, int64_t packs, int64_t chunks, int64_t group_rows) {
    using H = Held<T, kSize, kChunkPacks>;
    const int64_t place = gridDim.x - 1 - blockIdx.x, chunk = place % chunks, group = place / chunks;
    const int64_t width = packs * kSize;
    const int64_t column = chunk * kChunk * kSize;
    const int count = packs_of(chunk, packs);
    const Held<W, kSize, kChunkPacks> scale(weight + column, count);
    A dweight[kChunkPacks][kSize] = {};
    for (int64_t row = min((group + 1) * group_rows, rows) - 1; row >= group * group_rows; row--) {
        H upstream(dy + row * width + column, count), values(x + row * width + column, count);
        const A mean = row_sum(sum_of, row, chunks) / width, inv_rms = inv_rms_of[row];
        H::for_each(count, [&](int k, int j) {
            const A xhat = values.kept[k][j] * inv_rms;
            A& g = upstream.kept[k][j];
            dweight[k][j] += g * xhat;
            g = inv_rms * (g * scale.kept[k][j] - xhat * mean);
        });
        upstream.store(dx + row * width + column, count);
    }
    write_columns(dweight, dweight_of + group * width + column, count);
}

// Adds up the partial sums of each column: blockDim.y threads share one, each in order, then one in order.
constexpr int kColumnsOfBlock = 32, kMostAtOnce = 32;

template <typename W, typename A>
__global__ void __launch_bounds__(kColumnsOfBlock* kMostAtOnce)
add_partials(const A* dweight_of, W* dweight, int64_t partials, int64_t width) {
    __shared__ A sums[kMostAtOnce][kColumnsOfBlock];
    const int64_t column = int64_t(blockIdx.x) * kColumnsOfBlock + threadIdx.x;
    A sum = 0;
    if (column < width) {
        for (int64_t p = threadIdx.y; p < partials; p += blockDim.y) sum += dweight_of[p * width + column];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || column >= width) return;
    for (int y = 1; y < blockDim.y; y++) sum += sums[y][threadIdx.x];
    narrow(sum, dweight[column]);
}

// ------------------------------------------------------------------------------------------------------
// From shape to kernel.

unsigned grid(int64_t blocks) {
    TORCH_CHECK(blocks <= INT_MAX, "rms_norm: ", blocks, " blocks are more than a grid can have");
    return static_cast<unsigned>(blocks);
}

unsigned threads_for(int64_t packs, int per_thread) {
    const int64_t needed = (packs + per_thread - 1) / per_thread;
    return static_cast<unsigned>((needed + kWarp - 1) / kWarp * kWarp);
}

bool aligned(std::initializer_list<const torch::Tensor*> tensors) {
    return std::all_of(tensors.begin(), tensors.end(),
                       [](const torch::Tensor* t) { return reinterpret_cast<uintptr_t>(t->data_ptr()) % 16 == 0; });
}

void check_like(const char* name, const torch::Tensor& tensor, const torch::Tensor& x) {
    TORCH_CHECK(tensor.device() == x.device() && tensor.scalar_type() == x.scalar_type(), "rms_norm: ", name,
                " is ", tensor.scalar_type(), " on ", tensor.device(), ", but x is ", x.scalar_type(), " on ",
                x.device());
}

void check_arguments(const torch::Tensor& x, const torch::Tensor& weight) {
    TORCH_CHECK(x.is_cuda(), "rms_norm: x must be a CUDA tensor, got one on ", x.device());
    const auto type = x.scalar_type();
    const bool narrow = type == torch::kHalf || type == torch::kBFloat16;
    TORCH_CHECK(narrow || type == torch::kFloat || type == torch::kDouble,
                "rms_norm: x must be float16, bfloat16, float32 or float64, got ", type);
    if (!narrow || weight.scalar_type() != torch::kFloat) check_like("weight", weight, x);
    TORCH_CHECK(weight.device() == x.device(), "rms_norm: weight is on ", weight.device(), ", but x is on ",
                x.device());
    TORCH_CHECK(weight.dim() >= 1 && x.dim() >= weight.dim() &&
                    x.sizes().slice(x.dim() - weight.dim()) == weight.sizes(),
                "rms_norm: the last dimensions of x ", x.sizes(), " must be normalized_shape ", weight.sizes());
}

template <typename T>
T* data(const torch::Tensor& tensor) {
    return static_cast<T*>(tensor.data_ptr());
}

// Of statistics and sums beside x.
torch::TensorOptions sum_options(const torch::Tensor& x) {
    return x.options().dtype(x.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat);
}

// Rows of fp64, or of 16 bits that are no whole packs, are seldom met: one way through them is built, not three.
template <typename T>
constexpr bool is_seldom(int size) {
    return size == 1 && !std::is_same_v<T, float>;
}

template <typename T, typename W>
struct Forward {
    using A = Sum<T>;
    torch::Tensor x, weight, y, inv_rms;
    int64_t rows, width;
    double eps;
    cudaStream_t stream;

    template <int kSize, int kPacks>
    void by_rows(int64_t packs) const {
        forward_rows<T, W, kSize, kPacks><<<grid(rows), threads_for(packs, kPacks), 0, stream>>>(
            data<T>(x), data<W>(weight), data<T>(y), data<A>(inv_rms), static_cast<int>(packs), static_cast<A>(eps));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }

    template <int kSize>
    void by_chunks(int64_t packs) const {
        const int64_t chunks = (packs + kChunk - 1) / kChunk;
        const auto squares = torch::empty({rows * chunks}, inv_rms.options());
        chunk_squares<T, kSize><<<grid(rows * chunks), kChunkThreads, 0, stream>>>(data<T>(x), data<A>(squares), packs,
                                                                                   chunks);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        forward_chunks<T, W, kSize><<<grid(rows * chunks), kChunkThreads, 0, stream>>>(
            data<T>(x), data<W>(weight), data<T>(y), data<A>(inv_rms), data<A>(squares), packs, chunks,
            static_cast<A>(eps));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }

    template <int kSize>
    void run() const {
        const int64_t packs = width / kSize;
        if constexpr (!is_seldom<T>(kSize)) {
            if (packs <= kShortPacks) return by_rows<kSize, 1>(packs);
            if (packs <= 256) return by_rows<kSize, forward_packs(kSize) / 2>(packs);
            if (packs <= forward_packs(kSize) * kMaxThreads) return by_rows<kSize, forward_packs(kSize)>(packs);
        }
        by_chunks<kSize>(packs);
    }
};

template <typename T, typename W>
struct Backward {
    using A = Sum<T>;
    torch::Tensor dy, x, weight, inv_rms, dx, dweight;
    int64_t rows, width;
    cudaStream_t stream;

    static int attribute(cudaDeviceAttr which) {
        int device, value;
        C10_CUDA_CHECK(cudaGetDevice(&device));
        C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
        return value;
    }

    static int64_t multiprocessors() { return attribute(cudaDevAttrMultiProcessorCount); }

    void add(const torch::Tensor& partials, int64_t count) const {
        const dim3 threads(kColumnsOfBlock, static_cast<unsigned>(std::min<int64_t>(count, kMostAtOnce)));
        add_partials<W, A><<<grid((width + kColumnsOfBlock - 1) / kColumnsOfBlock), threads, 0, stream>>>(
            data<A>(partials), data<W>(dweight), count, width);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }

    template <int kSize, int kPacks>
    void by_rows(int64_t packs) const {
        const unsigned threads = threads_for(packs, kPacks);
        const int64_t resident = multiprocessors() * std::min<int64_t>(1024 / threads, 8);
        const int64_t blocks = std::min(rows, resident);
        const auto partials = torch::empty({blocks, width}, inv_rms.options());
        backward_rows<T, W, kSize, kPacks><<<grid(blocks), threads, 0, stream>>>(
            data<T>(dy), data<T>(x), data<W>(weight), data<A>(inv_rms), data<T>(dx), data<A>(partials), rows,
            static_cast<int>(packs));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        add(partials, blocks);
    }

    // By so many blocks a row. Whether there are bulk copies; then it has run.
    template <int kSize, int kPacks, int kBlocks = 1>
    bool by_ring(int64_t packs) const {
        const auto kernel = backward_ring<T, W, kSize, kPacks, kBlocks>;
        const static bool compiled = [&] {  // what was compiled for an older GPU has an empty kernel
            cudaFuncAttributes found = {};
            C10_CUDA_CHECK(cudaFuncGetAttributes(&found, kernel));
            return found.ptxVersion >= 90;
        }();
        if (!compiled || attribute(cudaDevAttrComputeCapabilityMajor) < 9) return false;
        const int64_t part = (packs + kBlocks - 1) / kBlocks, of_part = part * kSize * sizeof(T);
        const unsigned threads = threads_for(part, kPacks);
        const int64_t together = std::min<int64_t>(ring_threads(kPacks) * ring_blocks(kPacks) / threads, kMostTogether);
        // An eighth of shared memory is for what is not the ring's.
        const int64_t room = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / 8 * 7 / together;
        const int64_t slots = std::min<int64_t>(room / of_part, kMostSlots);
        if (slots < kLeastSlots) return false;
        const int64_t teams = std::min(rows, multiprocessors() * together / kBlocks);
        const auto partials = torch::empty({teams, width}, inv_rms.options());
        cudaLaunchAttribute cluster = {};
        cluster.id = cudaLaunchAttributeClusterDimension;
        cluster.val.clusterDim = {kBlocks, 1, 1};
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(grid(teams * kBlocks));
        config.blockDim = dim3(threads);
        config.dynamicSmemBytes = slots * of_part;
        config.stream = stream;
        config.attrs = &cluster;
        config.numAttrs = 1;
        C10_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(config.dynamicSmemBytes)));
        C10_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, data<T>(dy), data<T>(x), data<W>(weight), data<A>(inv_rms),
                                          data<T>(dx), data<A>(partials), rows, static_cast<int>(packs),
                                          static_cast<int>(slots)));
        add(partials, teams);
        return true;
    }

    template <int kSize>
    void by_chunks(int64_t packs) const {
        const int64_t chunks = (packs + kChunk - 1) / kChunk;
        const auto sums = torch::empty({rows * chunks}, inv_rms.options());
        chunk_sums<T, W, kSize><<<grid(rows * chunks), kChunkThreads, 0, stream>>>(
            data<T>(dy), data<T>(x), data<W>(weight), data<A>(inv_rms), data<A>(sums), packs, chunks);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        // Enough groups to fill the device, and no more: each costs a row of partial sums.
        const int64_t wanted = std::min(rows, (kGroupBlocks * multiprocessors() + chunks - 1) / chunks);
        const int64_t group_rows = (rows + wanted - 1) / wanted, groups = (rows + group_rows - 1) / group_rows;
        const bool is_sum = groups == 1 && std::is_same_v<W, A>;  // what the one group leaves
        const auto partials = is_sum ? dweight : torch::empty({groups, width}, inv_rms.options());
        backward_chunks<T, W, kSize><<<grid(chunks * groups), kChunkThreads, 0, stream>>>(
            data<T>(dy), data<T>(x), data<W>(weight), data<A>(inv_rms), data<A>(sums), data<T>(dx), data<A>(partials),
            rows, packs, chunks, group_rows);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        if (!is_sum) add(partials, groups);
    }

    template <int kSize>
    void run() const {
        const int64_t packs = width / kSize;
        if constexpr (kSize * sizeof(T) == 16) {
            constexpr int kPacks = backward_packs(kSize);
            if (packs <= kShortPacks && by_ring<kSize, 1>(packs)) return;
            if (packs <= kPacks * kMaxThreads && by_ring<kSize, kPacks>(packs)) return;
            // With fewer rows than clusters chunks keep more multiprocessors busy.
            const bool by_two = 2 * rows >= multiprocessors() && packs <= 2 * kPacks * kMaxThreads;
            if (by_two && by_ring<kSize, kPacks, 2>(packs)) return;
        }
        if constexpr (!is_seldom<T>(kSize)) {
            if (packs <= kShortPacks) return by_rows<kSize, 1>(packs);
            if (packs <= backward_packs(kSize) * kMaxThreads) return by_rows<kSize, backward_packs(kSize)>(packs);
        }
        by_chunks<kSize>(packs);
    }
};

// Runs Call<x's type, weight's type>, which is made of `arguments`, with whole packs where `packed` allows it.
template <template <typename, typename> typename Call, typename... Arguments>
void run(const torch::Tensor& x, const torch::Tensor& weight, bool packed, const Arguments&... arguments) {
    const auto as = [&](auto of_x, auto of_weight) {
        const Call<decltype(of_x), decltype(of_weight)> call = {arguments...};
        constexpr int kSize = sizeof(of_x) > 4 ? 1 : 16 / sizeof(of_x);
        packed && weight.numel() % kSize == 0 ? call.template run<kSize>() : call.template run<1>();
    };
    const bool alike = weight.scalar_type() == x.scalar_type();
    if (x.scalar_type() == torch::kHalf) alike ? as(__half(), __half()) : as(__half(), 0.0f);
    else if (x.scalar_type() == torch::kFloat) as(0.0f, 0.0f);
    else if (x.scalar_type() == torch::kDouble) as(0.0, 0.0);
    else alike ? as(__nv_bfloat16(), __nv_bfloat16()) : as(__nv_bfloat16(), 0.0f);
}

std::tuple<at::Tensor, at::Tensor> forward(at::Tensor x, at::Tensor weight, double eps) {
    check_arguments(x, weight);
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    weight = weight.contiguous();
    const int64_t width = weight.numel(), rows = width ? x.numel() / width : 0;
    const auto y = torch::empty(x.sizes(), x.options()), inv_rms = torch::empty({rows}, sum_options(x));
    if (rows == 0) return {y, inv_rms};  // a launch of no blocks is an error
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    run<Forward>(x, weight, aligned({&x, &weight}), x, weight, y, inv_rms, rows, width, eps, stream);
    return {y, inv_rms};
}

std::tuple<at::Tensor, at::Tensor> backward(at::Tensor dy, at::Tensor x, at::Tensor weight, at::Tensor inv_rms) {
    check_arguments(x, weight);
    check_like("dy", dy, x);
    TORCH_CHECK(dy.sizes() == x.sizes(), "rms_norm: dy has shape ", dy.sizes(), " but x has shape ", x.sizes());
    const c10::cuda::CUDAGuard guard(x.device());
    dy = dy.contiguous();
    x = x.contiguous();
    weight = weight.contiguous();
    const int64_t width = weight.numel(), rows = width ? x.numel() / width : 0;
    TORCH_CHECK(inv_rms.numel() == rows, "rms_norm: ", rows, " rows, but ", inv_rms.numel(), " inverse roots");
    const auto dx = torch::empty(x.sizes(), x.options());
    if (rows == 0) return {dx, torch::zeros(weight.sizes(), weight.options())};
    const auto dweight = torch::empty(weight.sizes(), weight.options());
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    run<Backward>(x, weight, aligned({&dy, &x, &weight}), dy, x, weight, inv_rms, dx, dweight, rows, width, stream);
    return {dx, dweight};
}
"""

# Host code is not optimised unless it is asked for, and autograd's templates take twice the time then.
rms_norm = load_inline(
    name="rmsnorm_registers",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    extra_cflags=["-O2"],
    extra_cuda_cflags=["-O2"],
).rms_norm


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.eps = float(eps)

    def forward(self, x):
        return rms_norm(x, self._parameters["weight"], self.eps)  # skips the search that self.weight would make
