"""LayerNorm's training step in 16 bits: x, dy and their gradients are fp16 or bf16, all sums fp32; fp64 is right.

The idea: 16-bit values are half of the bytes, and no reason to compute in 16 bits. A block holds a row in registers,
so that x is read once in the forward, and x and dy once in the backward. The backward's blocks stay: each goes from
row to row with the same threads on the same columns, so that dweight and dbias grow in fp32 registers, and one row of
partial sums for each block is left over, which a second kernel adds up in a fixed order. The next rows are on their way
while one is summed: in a ring of bulk copies in shared memory on Hopper and later, or one row in registers.

A row that no block can hold is read three times in the forward. In the backward one kernel finds what a row needs to
know of itself, and a second goes down a few columns of a group of rows.

Numerics: the mean is a sum of deviations from the row's first element, the variance a second pass over deviations from
the mean. What is written in 16 bits is rounded once, at the end: so are dweight and dbias.

Bytes moved, rows that a block holds: forward x and y once, backward x, dy and dx once: bf16 8192x4096 134 MB and
201 MB, where fp32 moves twice as many.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/python_variable.h>

std::tuple<at::Tensor, at::Tensor> forward(at::Tensor x, at::Tensor weight, at::Tensor bias, double eps);
std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(at::Tensor dy, at::Tensor x, at::Tensor weight,
                                                        at::Tensor of_rows);

struct LayerNorm : torch::autograd::Function<LayerNorm> {
    static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                              const at::Tensor& bias, double eps) {
        auto [y, of_rows] = ::forward(x, weight, bias, eps);
        context->save_for_backward({x, weight, std::move(of_rows)});
        return y;
    }

    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list dy) {
        TORCH_CHECK(!at::GradMode::is_enabled(),
                    "layer_norm can be differentiated once, but its backward was called with create_graph=True");
        const auto saved = context->get_saved_variables();
        auto [dx, dweight, dbias] = ::backward(dy[0], saved[0], saved[1], saved[2]);
        return {std::move(dx), std::move(dweight), std::move(dbias), at::Tensor()};
    }
};

static PyObject* python_layer_norm(PyObject*, PyObject* const* given, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    TORCH_CHECK_TYPE(count == 4 && THPVariable_Check(given[0]) && THPVariable_Check(given[1]) &&
                         THPVariable_Check(given[2]) && PyFloat_Check(given[3]),
                     "layer_norm takes the tensors x, weight and bias, and eps, a float");
    return THPVariable_Wrap(LayerNorm::apply(THPVariable_Unpack(given[0]), THPVariable_Unpack(given[1]),
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
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <algorithm>
#include <climits>
#include <type_traits>

constexpr int kWarp = 32, kThreads = 512, kWarps = kThreads / kWarp;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kForwardLoads = 4;   // packs of a row in a thread: up to 16,384 values of 16 bits in a block
constexpr int kBackwardLoads = 2;  // x and dy of two rows and two fp32 sums are in registers: up to 8,192
constexpr int kColumnThreads = 128, kGroupRows = 32;  // of the backward of rows that no block holds
constexpr int kColumnsOfBlock = 32, kMostAtOnce = 32;  // of what adds partial sums up

// ------------------------------------------------------------------------------------------------------
// Packs: several values in one load or store, of 16 bytes at most.

constexpr int alignment(int bytes) { return bytes >= 16 ? 16 : bytes; }

template <typename T, int kSize>
struct alignas(alignment(kSize * sizeof(T))) Pack {
    T at[kSize];
};

// What sums are kept in.
template <typename T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ __forceinline__ float wide(float v) { return v; }
__device__ __forceinline__ double wide(double v) { return v; }
__device__ __forceinline__ float wide(__half v) { return __half2float(v); }
__device__ __forceinline__ float wide(__nv_bfloat16 v) { return __bfloat162float(v); }

template <typename T>
__device__ __forceinline__ T narrow(Sum<T> v) {
    if constexpr (std::is_same_v<T, __half>) return __float2half_rn(v);
    else if constexpr (std::is_same_v<T, __nv_bfloat16>) return __float2bfloat16_rn(v);
    else return v;
}

// ------------------------------------------------------------------------------------------------------
// Sums over a block.

template <typename A>
struct Two {
    A first, second;
    __device__ Two operator+(const Two& other) const { return {first + other.first, second + other.second}; }
};

template <typename A>
__device__ __forceinline__ Two<A> shuffled(const Two<A>& v, int mask) {
    return {__shfl_xor_sync(kAllLanes, v.first, mask), __shfl_xor_sync(kAllLanes, v.second, mask)};
}

// The sum of every thread's value, for all of them. `of_warps` is shared memory that no sum before the last one has
// used: who writes to it has passed the last one's barrier, and so has everybody who read it.
template <typename A>
__device__ Two<A> sum_over_block(Two<A> v, Two<A>* of_warps) {
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2) v = v + shuffled(v, mask);
    if (lane == 0) of_warps[threadIdx.x / kWarp] = v;
    __syncthreads();
    v = lane < blockDim.x / kWarp ? of_warps[lane] : Two<A>{0, 0};
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2) v = v + shuffled(v, mask);
    return v;
}

template <typename A>
struct Statistics {
    A mean, inv_std;
};

// A thread's packs of a row: every blockDim.x-th. With kLoads they are held, which reads them once; a place behind the
// row's end holds its last pack, since a load under a condition would let the compiler use the others first. Without,
// each pass reads them again.
template <typename T, int kSize, int kLoads>
struct Row {
    const Pack<T, kSize>* memory;
    int packs;
    Pack<T, kSize> kept[kLoads > 0 ? kLoads : 1];

    __device__ Row(const T* from, int packs) : packs(packs) { load(from); }

    __device__ void load(const T* from) {
        memory = reinterpret_cast<const Pack<T, kSize>*>(from);
#pragma unroll
        for (int k = 0; k < kLoads; k++) kept[k] = memory[min(int(threadIdx.x + k * blockDim.x), packs - 1)];
    }

    // `use(pack, i, k)`: the row's i-th pack is the thread's k-th.
    template <typename Use>
    __device__ void each(Use use) const {
        if constexpr (kLoads > 0) {
#pragma unroll
            for (int k = 0; k < kLoads; k++) {
                const int i = threadIdx.x + k * blockDim.x;
                if (i < packs) use(kept[k], i, k);
            }
        } else {
            for (int i = threadIdx.x, k = 0; i < packs; i += blockDim.x, k++) use(memory[i], i, k);
        }
    }
};

// ------------------------------------------------------------------------------------------------------
// forward_rows: a block for each row.

template <typename T, typename W, int kSize, int kLoads>
__global__ void __launch_bounds__(kThreads)
forward_rows(const T* x, const W* weight, const W* bias, T* y, Statistics<Sum<T>>* of_rows, int64_t width,
             Sum<T> eps) {
    using A = Sum<T>;
    __shared__ Two<A> of_warps[2][kWarps];
    const int64_t start = blockIdx.x * width;
    const Row<T, kSize, kLoads> row(x + start, static_cast<int>(width / kSize));
    const A pivot = wide(x[start]);
    Two<A> sums = {0, 0};
    row.each([&](const Pack<T, kSize>& pack, int, int) {
#pragma unroll
        for (int j = 0; j < kSize; j++) sums.first += wide(pack.at[j]) - pivot;
    });
    const A mean = pivot + sum_over_block(sums, of_warps[0]).first / A(width);
    sums = {0, 0};
    row.each([&](const Pack<T, kSize>& pack, int, int) {
#pragma unroll
        for (int j = 0; j < kSize; j++) {
            const A deviation = wide(pack.at[j]) - mean;
            sums = sums + Two<A>{deviation, deviation * deviation};
        }
    });
    sums = sum_over_block(sums, of_warps[1]);
    const A rest = sums.first / A(width);  // what rounding took from the mean
    const A variance = max(sums.second / A(width) - rest * rest, A(0));
    const Statistics<A> found = {mean + rest, rsqrt(variance + eps)};
    const auto* scales = reinterpret_cast<const Pack<W, kSize>*>(weight);
    const auto* shifts = reinterpret_cast<const Pack<W, kSize>*>(bias);
    auto* out = reinterpret_cast<Pack<T, kSize>*>(y + start);
    row.each([&](const Pack<T, kSize>& pack, int i, int) {
        const Pack<W, kSize> scale = scales[i], shift = shifts[i];
        Pack<T, kSize> result;
#pragma unroll
        for (int j = 0; j < kSize; j++) {
            const A normalised = (wide(pack.at[j]) - found.mean) * found.inv_std;
            result.at[j] = narrow<T>(normalised * wide(scale.at[j]) + wide(shift.at[j]));
        }
        out[i] = result;
    });
    if (threadIdx.x == 0) of_rows[blockIdx.x] = found;
}

// ------------------------------------------------------------------------------------------------------
// The backward. With g = dy weight and xhat = (x - mean) inv_std:
//     dx = inv_std (g - mean of g - xhat mean of g xhat),    dweight = sum over rows of dy xhat,    dbias = of dy.

// What one row's means and one column's sums are made of.
template <typename A>
struct Term {
    A xhat, g;
    template <typename T, typename W>
    __device__ Term(T x, T dy, W weight, const Statistics<A>& row)
        : xhat((wide(x) - row.mean) * row.inv_std), g(wide(dy) * wide(weight)) {}
    __device__ A dx(const Two<A>& means, A inv_std) const { return inv_std * (g - means.first - xhat * means.second); }
};

// One row of a block: dx, and what it adds to the columns' sums. `taken()` is called when all threads have theirs.
template <typename T, typename W, int kSize, int kLoads, typename A, typename Taken>
__device__ __forceinline__ void backward_row(const Row<T, kSize, kLoads>& x_row, const Row<T, kSize, kLoads>& dy_row,
                                             const Pack<W, kSize>* scales, const Statistics<A>& row,
                                             Two<A> (&columns)[kLoads][kSize], Two<A>* of_warps, T* dx, Taken taken) {
    Two<A> sums = {0, 0};
    x_row.each([&](const Pack<T, kSize>& pack, int i, int k) {
        const Pack<W, kSize> scale = scales[i];
#pragma unroll
        for (int j = 0; j < kSize; j++) {
            const Term<A> term(pack.at[j], dy_row.kept[k].at[j], scale.at[j], row);
            const A of_bias = wide(dy_row.kept[k].at[j]);
            sums = sums + Two<A>{term.g, term.g * term.xhat};
            columns[k][j] = columns[k][j] + Two<A>{of_bias * term.xhat, of_bias};
        }
    });
    sums = sum_over_block(sums, of_warps);
    taken();
    const A width = A(x_row.packs) * kSize;
    const Two<A> means = {sums.first / width, sums.second / width};
    auto* out = reinterpret_cast<Pack<T, kSize>*>(dx);
    x_row.each([&](const Pack<T, kSize>& pack, int i, int k) {
        const Pack<W, kSize> scale = scales[i];
        Pack<T, kSize> result;
#pragma unroll
        for (int j = 0; j < kSize; j++) {
            const Term<A> term(pack.at[j], dy_row.kept[k].at[j], scale.at[j], row);
            result.at[j] = narrow<T>(term.dx(means, row.inv_std));
        }
        out[i] = result;
    });
}

template <typename A, int kLoads, int kSize>
__device__ __forceinline__ void write_columns(const Two<A> (&columns)[kLoads][kSize], int packs, A* dweight, A* dbias) {
#pragma unroll
    for (int k = 0; k < kLoads; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i >= packs) continue;
#pragma unroll
        for (int j = 0; j < kSize; j++) {
            dweight[int64_t(i) * kSize + j] = columns[k][j].first;
            dbias[int64_t(i) * kSize + j] = columns[k][j].second;
        }
    }
}

// backward_rows: a block goes from row to row and holds each. It leaves its sums of columns in its row of
// `dweight_of` and `dbias_of`.
template <typename T, typename W, int kSize>
__global__ void __launch_bounds__(kThreads)
backward_rows(const T* dy, const T* x, const W* weight, const Statistics<Sum<T>>* of_rows, T* dx, Sum<T>* dweight_of,
              Sum<T>* dbias_of, int64_t rows, int64_t width) {
    using A = Sum<T>;
    __shared__ Two<A> of_warps[2][kWarps];
    const int packs = static_cast<int>(width / kSize);
    const auto* scales = reinterpret_cast<const Pack<W, kSize>*>(weight);
    Two<A> columns[kBackwardLoads][kSize] = {};
    int turn = 0;
    // The next row is on its way while this one is summed.
    Row<T, kSize, kBackwardLoads> next_x(x + blockIdx.x * width, packs), next_dy(dy + blockIdx.x * width, packs);
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x, turn ^= 1) {
        const auto x_row = next_x, dy_row = next_dy;
        const int64_t next = r + gridDim.x;
        if (next < rows) {
            next_x.load(x + next * width);
            next_dy.load(dy + next * width);
        }
        backward_row(x_row, dy_row, scales, of_rows[r], columns, of_warps[turn], dx + r * width, [] {});
    }
    write_columns(columns, packs, dweight_of + blockIdx.x * width, dbias_of + blockIdx.x * width);
}

// ------------------------------------------------------------------------------------------------------
// backward_ring: the same where bulk copies are. Rows of dy and x wait in shared memory, in the slots of a ring, and so
// more of them are on their way than registers have room for. Load 2 n is dy of the block's row n, load 2 n + 1 its x.

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

// Threads of a block, at most, and blocks whose registers share a multiprocessor.
constexpr int ring_threads(int loads) { return loads == 1 ? 256 : kThreads; }
constexpr int ring_blocks(int loads) { return loads == 1 ? 4 : 1; }
constexpr int kMostTogether = 4;  // blocks on a multiprocessor, each of which leaves a row of partial sums

// Rows of so many packs have one of them in a thread. Longer ones have more: what a warp does for each row beside its
// values takes more instructions than a pack.
constexpr int kShortPacks = 256;

template <typename T, typename W, int kSize, int kLoads>
__global__ void __launch_bounds__(ring_threads(kLoads), ring_blocks(kLoads))
backward_ring(const T* dy, const T* x, const W* weight, const Statistics<Sum<T>>* of_rows, T* dx, Sum<T>* dweight_of,
              Sum<T>* dbias_of, int64_t rows, int64_t width, int slots) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // nothing launches this elsewhere
    using A = Sum<T>;
    extern __shared__ __align__(128) unsigned char ring[];
    __shared__ uint64_t arrived[kMostSlots];
    __shared__ Two<A> of_warps[2][kWarps];
    const int packs = static_cast<int>(width / kSize);
    const unsigned bytes = packs * kSize * sizeof(T);
    int64_t next = blockIdx.x;  // row of the next load
    bool next_is_x = false;
    const auto ask = [&](int slot) {
        if (next < rows) bulk_load(ring + slot * bytes, (next_is_x ? x : dy) + next * width, bytes, &arrived[slot]);
        if (next_is_x) next += gridDim.x;
        next_is_x = !next_is_x;
    };
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < slots; slot++) make_barrier(&arrived[slot]);
        asm volatile("fence.proxy.async.shared::cta;" : : : "memory");  // copies see the barriers
        for (int slot = 0; slot < slots; slot++) ask(slot);
    }
    const auto* scales = reinterpret_cast<const Pack<W, kSize>*>(weight);
    Two<A> columns[kLoads][kSize] = {};
    Statistics<A> next_is = of_rows[blockIdx.x];
    __syncthreads();
    int slot = 0;
    unsigned parity = 0;
    const auto take = [&] {  // this thread's part of what has come into the slot
        wait(&arrived[slot], parity);
        const Row<T, kSize, kLoads> row(reinterpret_cast<const T*>(ring + slot * bytes), packs);
        if (++slot == slots) {
            slot = 0;
            parity ^= 1;
        }
        return row;
    };
    int turn = 0;
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x, turn ^= 1) {
        const Statistics<A> row_is = next_is;
        if (r + gridDim.x < rows) next_is = of_rows[r + gridDim.x];
        const int of_dy = slot;
        const auto dy_row = take();
        const int of_x = slot;
        const auto x_row = take();
        backward_row(x_row, dy_row, scales, row_is, columns, of_warps[turn], dx + r * width, [&] {
            if (threadIdx.x > 0) return;
            ask(of_dy);
            ask(of_x);
        });
    }
    write_columns(columns, packs, dweight_of + blockIdx.x * width, dbias_of + blockIdx.x * width);
#endif
}

// row_means: the means of g and of g xhat, a block for each row.
template <typename T, typename W, int kSize>
__global__ void __launch_bounds__(kThreads)
row_means(const T* dy, const T* x, const W* weight, const Statistics<Sum<T>>* of_rows, Two<Sum<T>>* means_of,
          int64_t width) {
    using A = Sum<T>;
    __shared__ Two<A> of_warps[kWarps];
    const int64_t start = blockIdx.x * width;
    const int packs = static_cast<int>(width / kSize);
    const auto* scales = reinterpret_cast<const Pack<W, kSize>*>(weight);
    const auto* upstream = reinterpret_cast<const Pack<T, kSize>*>(dy + start);
    const Statistics<A> row = of_rows[blockIdx.x];
    Two<A> sums = {0, 0};
    Row<T, kSize, 0>(x + start, packs).each([&](const Pack<T, kSize>& pack, int i, int) {
        const Pack<W, kSize> scale = scales[i];
        const Pack<T, kSize> dys = upstream[i];
#pragma unroll
        for (int j = 0; j < kSize; j++) {
            const Term<A> term(pack.at[j], dys.at[j], scale.at[j], row);
            sums = sums + Two<A>{term.g, term.g * term.xhat};
        }
    });
    sums = sum_over_block(sums, of_warps);
    if (threadIdx.x == 0) means_of[blockIdx.x] = {sums.first / A(width), sums.second / A(width)};
}

// column_gradients: a thread has a pack of columns and goes down a group of rows.
template <typename T, typename W, int kSize>
__global__ void __launch_bounds__(kColumnThreads)
column_gradients(const T* dy, const T* x, const W* weight, const Statistics<Sum<T>>* of_rows,
                 const Two<Sum<T>>* means_of, T* dx, Sum<T>* dweight_of, Sum<T>* dbias_of, int64_t rows,
                 int64_t width) {
    using A = Sum<T>;
    const int64_t column = (int64_t(blockIdx.x) * kColumnThreads + threadIdx.x) * kSize;
    if (column >= width) return;
    const Pack<W, kSize> scale = *reinterpret_cast<const Pack<W, kSize>*>(weight + column);
    Two<A> columns[kSize] = {};
    const int64_t end = min(rows, int64_t(blockIdx.y + 1) * kGroupRows);
    for (int64_t r = int64_t(blockIdx.y) * kGroupRows; r < end; r++) {
        const auto xs = *reinterpret_cast<const Pack<T, kSize>*>(x + r * width + column);
        const auto dys = *reinterpret_cast<const Pack<T, kSize>*>(dy + r * width + column);
        const Statistics<A> row = of_rows[r];
        const Two<A> means = means_of[r];
        Pack<T, kSize> result;
#pragma unroll
        for (int j = 0; j < kSize; j++) {
            const Term<A> term(xs.at[j], dys.at[j], scale.at[j], row);
            result.at[j] = narrow<T>(term.dx(means, row.inv_std));
            columns[j] = columns[j] + Two<A>{wide(dys.at[j]) * term.xhat, wide(dys.at[j])};
        }
        *reinterpret_cast<Pack<T, kSize>*>(dx + r * width + column) = result;
    }
    for (int j = 0; j < kSize; j++) {
        dweight_of[blockIdx.y * width + column + j] = columns[j].first;
        dbias_of[blockIdx.y * width + column + j] = columns[j].second;
    }
}

// add_partials: a column's partial sums in a fixed order, blockDim.y threads for each column; blockIdx.y chooses
// between dweight and dbias.
template <typename W, typename A>
__global__ void __launch_bounds__(kColumnsOfBlock * kMostAtOnce)
add_partials(const A* dweight_of, const A* dbias_of, W* dweight, W* dbias, int64_t partials, int64_t width) {
    __shared__ A of_threads[kMostAtOnce][kColumnsOfBlock];
    const int64_t column = int64_t(blockIdx.x) * kColumnsOfBlock + threadIdx.x;
    const A* from = blockIdx.y == 0 ? dweight_of : dbias_of;
    A sum = 0;
    if (column < width) {
        for (int64_t p = threadIdx.y; p < partials; p += blockDim.y) sum += from[p * width + column];
    }
    of_threads[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= width) return;
    for (int t = 1; t < blockDim.y; t++) sum += of_threads[t][threadIdx.x];
    (blockIdx.y == 0 ? dweight : dbias)[column] = narrow<W>(sum);
}

// ------------------------------------------------------------------------------------------------------
// From tensors to kernels.

unsigned grid(int64_t blocks) {
    TORCH_CHECK(blocks <= INT_MAX, "layer_norm: ", blocks, " blocks are more than a grid can have");
    return static_cast<unsigned>(blocks);
}

int64_t number_of(int64_t all, int64_t size) { return (all + size - 1) / size; }

// The threads that hold so many packs with `loads` in each.
unsigned threads_for(int64_t packs, int loads) {
    return static_cast<unsigned>(std::min<int64_t>(number_of(packs, loads * kWarp) * kWarp, kThreads));
}

bool aligned(std::initializer_list<const torch::Tensor*> tensors) {
    return std::all_of(tensors.begin(), tensors.end(), [](const torch::Tensor* t) {
        return reinterpret_cast<uintptr_t>(t->data_ptr()) % 16 == 0;
    });
}

template <typename T>
T* data(const torch::Tensor& tensor) {
    return static_cast<T*>(tensor.data_ptr());
}

template <typename T, typename W, int kSize>
void run_forward(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, torch::Tensor& y,
                 torch::Tensor& of_rows, double eps) {
    const int64_t width = weight.numel(), packs = width / kSize;
    const auto launch = [&](auto* kernel) {
        kernel<<<grid(of_rows.size(0)), threads_for(packs, kForwardLoads), 0, c10::cuda::getCurrentCUDAStream()>>>(
            data<T>(x), data<W>(weight), data<W>(bias), data<T>(y), data<Statistics<Sum<T>>>(of_rows), width,
            static_cast<Sum<T>>(eps));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    constexpr int kHeld = kSize == 1 ? 0 : kForwardLoads;  // single values would need many loads, and are seldom met
    if (packs <= kHeld * kThreads) launch(forward_rows<T, W, kSize, kHeld>);
    else launch(forward_rows<T, W, kSize, 0>);
}

// How backward_ring is launched: so many blocks of so many threads, each with a ring of so many slots.
// No slots where it cannot be.
struct RingShape {
    int64_t blocks, slots;
    unsigned threads;
};

template <typename T, typename W, int kSize, int kLoads>
RingShape ring_shape(int64_t rows, int64_t width, int device) {
    const static bool compiled = [] {  // what was compiled for an older GPU has an empty kernel
        cudaFuncAttributes found = {};
        C10_CUDA_CHECK(cudaFuncGetAttributes(&found, backward_ring<T, W, kSize, kLoads>));
        return found.ptxVersion >= 90;
    }();
    const auto attribute = [&](cudaDeviceAttr which) {
        int value = 0;
        C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
        return value;
    };
    if (!compiled || attribute(cudaDevAttrComputeCapabilityMajor) < 9) return {};
    const unsigned threads = threads_for(width / kSize, kLoads);
    const int64_t together = std::min<int64_t>(ring_threads(kLoads) * ring_blocks(kLoads) / threads, kMostTogether);
    // An eighth of shared memory is for what is not the ring's.
    const int64_t room = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / 8 * 7 / together;
    const int64_t slots = std::min<int64_t>(room / (width * sizeof(T)), kMostSlots);
    if (slots < kLeastSlots) return {};
    return {std::min(rows, int64_t(attribute(cudaDevAttrMultiProcessorCount)) * together), slots, threads};
}

// The partial sums of columns, and what is made of them.
template <typename W, typename A>
struct Partials {
    int64_t count, width;
    torch::Tensor dweight_of, dbias_of;

    Partials(int64_t count, int64_t width, const torch::TensorOptions& sums)
        : count(count), width(width), dweight_of(torch::empty({count, width}, sums)),
          dbias_of(torch::empty({count, width}, sums)) {}

    void add(torch::Tensor& dweight, torch::Tensor& dbias, cudaStream_t stream) const {
        const dim3 threads(kColumnsOfBlock, static_cast<unsigned>(std::min<int64_t>(count, kMostAtOnce)));
        add_partials<W, A><<<dim3(grid(number_of(width, kColumnsOfBlock)), 2), threads, 0, stream>>>(
            data<A>(dweight_of), data<A>(dbias_of), data<W>(dweight), data<W>(dbias), count, width);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
};

template <typename T, typename W, int kSize>
void run_backward(const torch::Tensor& dy, const torch::Tensor& x, const torch::Tensor& weight,
                  const torch::Tensor& of_rows, torch::Tensor& dx, torch::Tensor& dweight, torch::Tensor& dbias) {
    using A = Sum<T>;
    const int64_t width = weight.numel(), rows = of_rows.size(0), packs = width / kSize;
    const int device = x.device().index();
    const auto stream = c10::cuda::getCurrentCUDAStream();
    const auto sums = of_rows.options();
    const auto* found = data<Statistics<A>>(of_rows);
    const bool held = packs <= kBackwardLoads * kThreads;
    if constexpr (kSize * sizeof(T) == 16 && sizeof(T) == 2) {
        const auto by_ring = [&](auto loads) {
            constexpr int kLoads = decltype(loads)::value;
            const RingShape shape = ring_shape<T, W, kSize, kLoads>(rows, width, device);
            if (shape.slots == 0) return false;
            const Partials<W, A> partials(shape.blocks, width, sums);
            const auto kernel = backward_ring<T, W, kSize, kLoads>;
            const int ring = static_cast<int>(shape.slots * width * sizeof(T));
            C10_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, ring));
            kernel<<<grid(shape.blocks), shape.threads, ring, stream>>>(
                data<T>(dy), data<T>(x), data<W>(weight), found, data<T>(dx), data<A>(partials.dweight_of),
                data<A>(partials.dbias_of), rows, width, static_cast<int>(shape.slots));
            C10_CUDA_KERNEL_LAUNCH_CHECK();
            partials.add(dweight, dbias, stream);
            return true;
        };
        if (held && (packs <= kShortPacks ? by_ring(std::integral_constant<int, 1>())
                                              : by_ring(std::integral_constant<int, kBackwardLoads>()))) {
            return;
        }
    }
    const unsigned threads = threads_for(packs, kBackwardLoads);
    int multiprocessors = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    const int64_t resident = int64_t(multiprocessors) * (kThreads / threads);
    const Partials<W, A> partials(held ? std::min(rows, resident) : number_of(rows, kGroupRows), width, sums);
    if (held) {
        backward_rows<T, W, kSize><<<grid(partials.count), threads, 0, stream>>>(
            data<T>(dy), data<T>(x), data<W>(weight), found, data<T>(dx), data<A>(partials.dweight_of),
            data<A>(partials.dbias_of), rows, width);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    } else {
        TORCH_CHECK(partials.count <= 65535, "layer_norm: ", rows, " rows of ", width,
                    " are more than this backward takes: ", int64_t(65535) * kGroupRows);
        const auto means_of = torch::empty({rows, 2}, sums);
        row_means<T, W, kSize><<<grid(rows), kThreads, 0, stream>>>(data<T>(dy), data<T>(x), data<W>(weight), found,
                                                                    data<Two<A>>(means_of), width);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        const dim3 blocks(grid(number_of(packs, kColumnThreads)), static_cast<unsigned>(partials.count));
        column_gradients<T, W, kSize><<<blocks, kColumnThreads, 0, stream>>>(
            data<T>(dy), data<T>(x), data<W>(weight), found, data<Two<A>>(means_of), data<T>(dx),
            data<A>(partials.dweight_of), data<A>(partials.dbias_of), rows, width);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    partials.add(dweight, dbias, stream);
}

// `run(x's type, weight's type, values of a pack)` for what the tensors hold; each is given as a zero of its type.
template <typename Run>
void choose(const torch::Tensor& x, const torch::Tensor& weight, bool packed, Run run) {
    const auto with_weight = [&](auto of_x) {
        using T = decltype(of_x);
        const auto with_pack = [&](auto of_weight) {
            if (packed) run(of_x, of_weight, std::integral_constant<int, 16 / sizeof(T)>());
            else run(of_x, of_weight, std::integral_constant<int, 1>());
        };
        if (weight.scalar_type() == x.scalar_type()) with_pack(of_x);
        else if constexpr (sizeof(T) == 2) with_pack(0.0f);
    };
    if (x.scalar_type() == torch::kHalf) with_weight(__half());
    else if (x.scalar_type() == torch::kBFloat16) with_weight(__nv_bfloat16());
    else with_weight(0.0);
}

void check(const torch::Tensor& x, const torch::Tensor& weight) {
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

std::tuple<at::Tensor, at::Tensor> forward(at::Tensor x, at::Tensor weight, at::Tensor bias, double eps) {
    check(x, weight);
    TORCH_CHECK(bias.sizes() == weight.sizes() && bias.scalar_type() == weight.scalar_type(), "layer_norm: bias is ",
                bias.scalar_type(), " of ", bias.sizes(), " but weight is ", weight.scalar_type(), " of ",
                weight.sizes());
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    weight = weight.contiguous();
    bias = bias.contiguous();
    const int64_t width = weight.numel(), rows = width ? x.numel() / width : 0;
    auto y = torch::empty(x.sizes(), x.options());
    const auto sums = x.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
    auto of_rows = torch::empty({rows, 2}, x.options().dtype(sums));
    if (rows == 0) return {y, of_rows};  // a launch of no blocks is an error
    const bool packed = width % (16 / x.element_size()) == 0 && aligned({&x, &weight, &bias});
    choose(x, weight, packed, [&](auto of_x, auto of_weight, auto size) {
        run_forward<decltype(of_x), decltype(of_weight), decltype(size)::value>(x, weight, bias, y, of_rows, eps);
    });
    return {y, of_rows};
}

// Of what forward was given and returned; dy is autograd's, of the shape and type of y.
std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(at::Tensor dy, at::Tensor x, at::Tensor weight,
                                                        at::Tensor of_rows) {
    check(x, weight);
    TORCH_CHECK(dy.sizes() == x.sizes() && dy.scalar_type() == x.scalar_type(), "layer_norm: dy is ",
                dy.scalar_type(), " of ", dy.sizes(), " but x is ", x.scalar_type(), " of ", x.sizes());
    const c10::cuda::CUDAGuard guard(x.device());
    dy = dy.contiguous();
    x = x.contiguous();
    weight = weight.contiguous();
    auto dx = torch::empty(x.sizes(), x.options());
    auto dweight = torch::empty(weight.sizes(), weight.options()), dbias = torch::empty_like(dweight);
    if (of_rows.size(0) == 0) return {dx, dweight.zero_(), dbias.zero_()};
    const bool packed = weight.numel() % (16 / x.element_size()) == 0 && aligned({&dy, &x, &weight});
    choose(x, weight, packed, [&](auto of_x, auto of_weight, auto size) {
        run_backward<decltype(of_x), decltype(of_weight), decltype(size)::value>(dy, x, weight, of_rows, dx, dweight,
                                                                                 dbias);
    });
    return {dx, dweight, dbias};
}
"""

# Host code is not optimised unless it is asked for, and autograd's templates take twice the time then.
layer_norm = load_inline(
    name="layernorm_train_row_on_chip",
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
        self.eps = float(eps)

    def forward(self, x):
        parameters = self._parameters  # skips the search that self.weight would make
        return layer_norm(x, parameters["weight"], parameters["bias"], self.eps)
