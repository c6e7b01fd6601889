"""LayerNorm and dropout in one pass, with a mask that is never stored: the backward draws it again.

The idea: whether an element is dropped follows from a seed and the element's place. Philox is a block cipher: it turns
(seed, place / 4) into four numbers without any state, so that forward and backward, whatever thread has the element,
find the same. What is kept between them is one integer, which torch's generator has drawn, so that torch.manual_seed
repeats a run. The rest is `fused_function` of layernorm_train: rows in registers, each element read once, and rows of
partial sums for dweight and dbias; longer rows in chunks.

Numerics: as there; fp16 and bf16 are widened when they are read and narrowed when they are written, and all sums are
fp32, and fp64 for fp64. An element is dropped when its 32 bits are below p 2^32: the rate is exact to 2^-32.

Bytes moved: those of LayerNorm alone; a mask of bytes would add a quarter to the forward.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/python_variable.h>

std::tuple<at::Tensor, at::Tensor, at::Tensor> forward(at::Tensor x, at::Tensor weight, at::Tensor bias, double eps,
                                                       double p, int64_t seed);
std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(at::Tensor dy, at::Tensor x, at::Tensor weight,
                                                        at::Tensor mean, at::Tensor inv_std, double p, int64_t seed);

struct LayerNormDropout : torch::autograd::Function<LayerNormDropout> {
    static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                              const at::Tensor& bias, double eps, double p) {
        // On the CPU's generator, which torch.manual_seed sets, too: asking a GPU's for a number would wait for it.
        const int64_t seed = p == 0.0 ? 0 : at::randint(int64_t(1) << 62, {}, at::kLong).item<int64_t>();
        auto [y, mean, inv_std] = ::forward(x, weight, bias, eps, p, seed);
        context->save_for_backward({x, weight, std::move(mean), std::move(inv_std)});
        context->saved_data["p"] = p;
        context->saved_data["seed"] = seed;
        return y;
    }

    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list dy) {
        TORCH_CHECK(!at::GradMode::is_enabled(), "layer_norm_dropout can be differentiated once, but its backward was "
                    "called with create_graph=True");
        const auto saved = context->get_saved_variables();
        auto [dx, dweight, dbias] = ::backward(dy[0], saved[0], saved[1], saved[2], saved[3],
                                               context->saved_data["p"].toDouble(),
                                               context->saved_data["seed"].toInt());
        return {std::move(dx), std::move(dweight), std::move(dbias), at::Tensor(), at::Tensor()};
    }
};

static PyObject* python_layer_norm_dropout(PyObject*, PyObject* const* given, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    TORCH_CHECK_TYPE(count == 5 && THPVariable_Check(given[0]) && THPVariable_Check(given[1]) &&
                         THPVariable_Check(given[2]) && PyFloat_Check(given[3]) && PyFloat_Check(given[4]),
                     "layer_norm_dropout takes the tensors x, weight and bias, and eps and p, floats");
    return THPVariable_Wrap(LayerNormDropout::apply(THPVariable_Unpack(given[0]), THPVariable_Unpack(given[1]),
                                                    THPVariable_Unpack(given[2]), PyFloat_AS_DOUBLE(given[3]),
                                                    PyFloat_AS_DOUBLE(given[4])));
    END_HANDLE_TH_ERRORS
}

static PyMethodDef functions[] = {
    {"layer_norm_dropout", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(python_layer_norm_dropout)),
     METH_FASTCALL, "layer_norm_dropout(x, weight, bias, eps, p) -> y"},
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

constexpr int kWarp = 32, kMaxThreads = 512;
constexpr unsigned kAllLanes = 0xffffffffu;

// Packs of a row in a thread's registers, at most. A pack of 8 values of 16 bits fills 8, one of 4 values of 32 bits 4.
constexpr int forward_packs(int size) { return size == 8 ? 4 : 8; }
constexpr int backward_packs(int size) { return size == 8 ? 2 : 4; }

constexpr int alignment(int bytes) { return bytes >= 16 ? 16 : bytes; }

template <typename T, int kSize>
struct alignas(alignment(kSize * sizeof(T))) Pack {  // one load or store, two of fp32 weights beside 16 bits
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

struct Dropout {
    uint64_t seed;
    bool drops;
    uint32_t last;  // numbers up to it drop an element
    double scale;
};

// Philox 4x32: four numbers for each counter. Seven rounds are the fewest that pass every test of BigCrush (Salmon,
// Moraes, Dror and Shaw, SC 2011, table 2); ten would take as long as the rest of a row in 16 bits.
constexpr int kPhiloxRounds = 7;

__device__ void philox(uint64_t seed, uint64_t counter, uint32_t (&out)[4]) {
    uint32_t a = counter, b = counter >> 32, c = 0, d = 0, key_a = seed, key_b = seed >> 32;
#pragma unroll
    for (int round = 0; round < kPhiloxRounds; round++) {
        const uint64_t of_a = uint64_t(0xD2511F53u) * a, of_c = uint64_t(0xCD9E8D57u) * c;
        a = uint32_t(of_c >> 32) ^ b ^ key_a;
        b = of_c;
        c = uint32_t(of_a >> 32) ^ d ^ key_b;
        d = of_a;
        key_a += 0x9E3779B9u;
        key_b += 0xBB67AE85u;
    }
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
}

// Drops values of one pack, and scales the others. `place` is that of the pack's first element in x.
template <int kSize, typename A>
__device__ void drop(const Dropout& dropout, uint64_t place, A (&values)[kSize]) {
    if (!dropout.drops) return;
    const A scale = dropout.scale;
#pragma unroll
    for (int first = 0; first < kSize; first += 4) {
        uint32_t numbers[4];
        philox(dropout.seed, (place + first) / 4, numbers);
#pragma unroll
        for (int j = first; j < kSize && j < first + 4; j++) {
            const uint32_t number = numbers[kSize < 4 ? (place + j) % 4 : j % 4];
            values[j] = number <= dropout.last ? A(0) : values[j] * scale;
        }
    }
}

template <typename T>
struct Two {
    T first, second;
};

// The sums over the block's threads of kCount values each, returned to all of them.
template <int kCount, typename T>
__device__ void block_sums(T (&values)[kCount]) {
    __shared__ T sums[kCount][kMaxThreads / kWarp];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
    for (int v = 0; v < kCount; v++) values[v] = warp_sum(values[v]);
    __syncthreads();  // the previous sums may still be being read
    if (lane == 0) {
#pragma unroll
        for (int v = 0; v < kCount; v++) sums[v][warp] = values[v];
    }
    __syncthreads();
#pragma unroll
    for (int v = 0; v < kCount; v++) values[v] = warp_sum(lane < blockDim.x / kWarp ? sums[v][lane] : T(0));
}

template <typename T>
__device__ T block_sum(T value) {
    T values[] = {value};
    block_sums(values);
    return values[0];
}

template <typename T>
__device__ Two<T> block_sums(T first, T second) {
    T values[] = {first, second};
    block_sums(values);
    return {values[0], values[1]};
}

// kPacks packs of a row for each thread, blockDim.x apart, as sums are kept. A place behind the row's end has its last
// pack: a load under a condition would let the compiler use the others first.
template <typename T, int kSize, int kPacks>
struct Held {
    Sum<T> kept[kPacks][kSize];

    __device__ Held(const T* from, int packs) {
        const auto* in = reinterpret_cast<const Pack<T, kSize>*>(from);
#pragma unroll
        for (int k = 0; k < kPacks; k++) {
            const Pack<T, kSize> pack = in[min(threadIdx.x + k * blockDim.x, packs - 1)];
#pragma unroll
            for (int j = 0; j < kSize; j++) kept[k][j] = wide(pack.at[j]);
        }
    }

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

    // Drops and scales what is held. `start` is the place of the row's (or chunk's) first element in x.
    __device__ void drop_each(const Dropout& dropout, int64_t start, int packs) {
#pragma unroll
        for (int k = 0; k < kPacks; k++) {
            const int i = threadIdx.x + k * blockDim.x;
            if (i < packs) drop(dropout, start + int64_t(i) * kSize, kept[k]);
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

// Mean of what the block holds, and the sum of squared deviations from it, in two corrected passes.
template <typename T, int kSize, int kPacks, typename A = Sum<T>>
__device__ Two<A> statistics(const Held<T, kSize, kPacks>& held, A pivot, int packs,
                                 Two<A>* low = nullptr) {
    using H = Held<T, kSize, kPacks>;
    const A count = A(packs) * kSize;
    A sum = 0;
    H::for_each(packs, [&](int k, int j) { sum += held.kept[k][j] - pivot; });
    const A mean = pivot + block_sum(sum) / count;
    A deviations = 0, squares = 0;
    H::for_each(packs, [&](int k, int j) {
        const A d = held.kept[k][j] - mean;
        deviations += d;
        squares += d * d;
    });
    const Two<A> sums = block_sums(deviations, squares);
    const A correction = sums.first / count;  // what the rounded mean missed
    if (low) *low = {mean, correction};
    return {mean + correction, fmax(sums.second - correction * sums.first, A(0))};
}

// ------------------------------------------------------------------------------------------------------
// Rows that a block holds.

template <typename T, typename W, int kSize, int kPacks, typename A = Sum<T>>
__global__ void __launch_bounds__(kMaxThreads, 2)  // a second block's numbers are drawn while the first waits
forward_rows(const T* x, const W* weight, const W* bias, T* y, A* mean_of, A* inv_std_of, int packs, A eps,
             Dropout dropout) {
    const int64_t start = int64_t(blockIdx.x) * packs * kSize;
    Held<T, kSize, kPacks> held(x + start, packs);
    Two<A> mean;
    const Two<A> stats = statistics(held, wide(x[start]), packs, &mean);
    const A inv_std = A(1) / sqrt(stats.second / (A(packs) * kSize) + eps);
#pragma unroll
    for (int k = 0; k < kPacks; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i >= packs) continue;
        const auto scale = reinterpret_cast<const Pack<W, kSize>*>(weight)[i];
        const auto shift = reinterpret_cast<const Pack<W, kSize>*>(bias)[i];
#pragma unroll
        for (int j = 0; j < kSize; j++) {
            A& value = held.kept[k][j];
            value = ((value - mean.first) - mean.second) * inv_std * A(wide(scale.at[j])) + A(wide(shift.at[j]));
        }
        drop(dropout, start + int64_t(i) * kSize, held.kept[k]);
    }
    held.store(y + start, packs);
    if (threadIdx.x == 0) {
        mean_of[blockIdx.x] = stats.first;
        inv_std_of[blockIdx.x] = inv_std;
    }
}

template <typename T, typename W, int kSize, int kPacks, typename A = Sum<T>>
__global__ void __launch_bounds__(kMaxThreads)
backward_rows(const T* dy, const T* x, const W* weight, const A* mean_of, const A* inv_std_of, T* dx,
              A* dweight_of, A* dbias_of, int64_t rows, int packs, Dropout dropout) {
    using H = Held<T, kSize, kPacks>;
    const int64_t width = int64_t(packs) * kSize;
    const Held<W, kSize, kPacks> scale(weight, packs);
    A dweight[kPacks][kSize] = {}, dbias[kPacks][kSize] = {};
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        H upstream(dy + row * width, packs), values(x + row * width, packs);
        upstream.drop_each(dropout, row * width, packs);
        const A mean = mean_of[row], inv_std = inv_std_of[row];
        A sum_g = 0, sum_g_xhat = 0;
        H::for_each(packs, [&](int k, int j) {
            A& xhat = values.kept[k][j];
            A& g = upstream.kept[k][j];
            xhat = (xhat - mean) * inv_std;
            dweight[k][j] += g * xhat;
            dbias[k][j] += g;
            g *= scale.kept[k][j];
            sum_g += g;
            sum_g_xhat += g * xhat;
        });
        const Two<A> sums = block_sums(sum_g, sum_g_xhat);
        const A mean_g = sums.first / width, mean_g_xhat = sums.second / width;
        H::for_each(packs, [&](int k, int j) {
            A& g = upstream.kept[k][j];
            g = inv_std * (g - mean_g - values.kept[k][j] * mean_g_xhat);
        });
        upstream.store(dx + row * width, packs);
    }
    const int64_t start = blockIdx.x * width;
    H::for_each(packs, [&](int k, int j) {
        const int64_t i = start + (threadIdx.x + k * blockDim.x) * kSize + j;
        dweight_of[i] = dweight[k][j];
        dbias_of[i] = dbias[k][j];
    });
}

// ------------------------------------------------------------------------------------------------------
// Rows in chunks of kChunk packs. Blocks cannot wait for each other: a second kernel does instead.

constexpr int kChunkThreads = 256, kChunkPacks = 4, kChunk = kChunkThreads * kChunkPacks;

__device__ int packs_of(int64_t chunk, int64_t packs) {
    const int64_t left = packs - chunk * kChunk;
    return left < kChunk ? left : kChunk;
}

template <typename T, int kSize, typename A = Sum<T>>
__global__ void __launch_bounds__(kChunkThreads)
chunk_statistics(const T* x, double* mean_of, double* squares_of, int64_t packs, int64_t chunks) {
    const int64_t row = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
    const T* from = x + (row * packs + chunk * kChunk) * kSize;
    const int count = packs_of(chunk, packs);
    const Held<T, kSize, kChunkPacks> held(from, count);
    Two<A> mean;
    const Two<A> stats = statistics(held, wide(from[0]), count, &mean);
    if (threadIdx.x == 0) {
        mean_of[blockIdx.x] = double(mean.first) + double(mean.second);
        squares_of[blockIdx.x] = stats.second;
    }
}

template <typename T, typename W, int kSize, typename A = Sum<T>>
__global__ void __launch_bounds__(kChunkThreads)
forward_chunks(const T* x, const W* weight, const W* bias, T* y, A* mean_of, A* inv_std_of,
               const double* chunk_mean, const double* chunk_squares, int64_t packs, int64_t chunks, A eps,
               Dropout dropout) {
    const int64_t row = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
    const double width = double(packs) * kSize;
    double sum = 0, squares = 0;
    for (int64_t c = threadIdx.x; c < chunks; c += kChunkThreads) {
        sum += double(packs_of(c, packs)) * kSize * chunk_mean[row * chunks + c];
    }
    const double mean = block_sum(sum) / width;
    for (int64_t c = threadIdx.x; c < chunks; c += kChunkThreads) {
        const double between = chunk_mean[row * chunks + c] - mean;
        squares += chunk_squares[row * chunks + c] + double(packs_of(c, packs)) * kSize * between * between;
    }
    const A inv_std = A(1) / sqrt(A(block_sum(squares) / width) + eps);
    const A high = mean, low = mean - high;  // together the double

    const int count = packs_of(chunk, packs);
    const int64_t column = chunk * kChunk * kSize, start = row * packs * kSize + column;
    Held<T, kSize, kChunkPacks> held(x + start, count);
    const Held<W, kSize, kChunkPacks> scale(weight + column, count), shift(bias + column, count);
    held.for_each(count, [&](int k, int j) {
        A& value = held.kept[k][j];
        value = ((value - high) - low) * inv_std * scale.kept[k][j] + shift.kept[k][j];
    });
    held.drop_each(dropout, start, count);
    held.store(y + start, count);
    if (chunk == 0 && threadIdx.x == 0) {
        mean_of[row] = high;
        inv_std_of[row] = inv_std;
    }
}

template <typename T, typename W, int kSize, typename A = Sum<T>>
__global__ void __launch_bounds__(kChunkThreads)
chunk_means(const T* dy, const T* x, const W* weight, const A* mean_of, const A* inv_std_of, A* sum_g_of,
            A* sum_g_xhat_of, int64_t packs, int64_t chunks, Dropout dropout) {
    const int64_t row = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
    const int64_t column = chunk * kChunk * kSize, start = row * packs * kSize + column;
    const int count = packs_of(chunk, packs);
    const Held<T, kSize, kChunkPacks> values(x + start, count);
    Held<T, kSize, kChunkPacks> upstream(dy + start, count);
    upstream.drop_each(dropout, start, count);
    const Held<W, kSize, kChunkPacks> scale(weight + column, count);
    const A mean = mean_of[row], inv_std = inv_std_of[row];
    A sum_g = 0, sum_g_xhat = 0;
    upstream.for_each(count, [&](int k, int j) {
        const A g = upstream.kept[k][j] * scale.kept[k][j];
        sum_g += g;
        sum_g_xhat += g * (values.kept[k][j] - mean) * inv_std;
    });
    const Two<A> sums = block_sums(sum_g, sum_g_xhat);
    if (threadIdx.x == 0) {
        sum_g_of[blockIdx.x] = sums.first;
        sum_g_xhat_of[blockIdx.x] = sums.second;
    }
}

// Block (chunk, group) has the columns of one chunk in every row of one group.
template <typename T, typename W, int kSize, typename A = Sum<T>>
__global__ void __launch_bounds__(kChunkThreads)
backward_chunks(const T* dy, const T* x, const W* weight, const A* mean_of, const A* inv_std_of,
                const A* sum_g_of, const A* sum_g_xhat_of, T* dx, A* dweight_of, A* dbias_of,
                int64_t rows, int64_t packs, int64_t chunks, int64_t group_rows, Dropout dropout) {
    using H = Held<T, kSize, kChunkPacks>;
    const int64_t chunk = blockIdx.x % chunks, group = blockIdx.x / chunks, width = packs * kSize;
    const int64_t column = chunk * kChunk * kSize;
    const int count = packs_of(chunk, packs);
    const Held<W, kSize, kChunkPacks> scale(weight + column, count);
    A dweight[kChunkPacks][kSize] = {}, dbias[kChunkPacks][kSize] = {};
    const int64_t last = min((group + 1) * group_rows, rows);
    for (int64_t row = group * group_rows; row < last; row++) {
        A sum_g = 0, sum_g_xhat = 0;
        for (int64_t c = threadIdx.x; c < chunks; c += kChunkThreads) {
            sum_g += sum_g_of[row * chunks + c];
            sum_g_xhat += sum_g_xhat_of[row * chunks + c];
        }
        const Two<A> sums = block_sums(sum_g, sum_g_xhat);
        const A mean_g = sums.first / width, mean_g_xhat = sums.second / width;
        H upstream(dy + row * width + column, count), values(x + row * width + column, count);
        upstream.drop_each(dropout, row * width + column, count);
        const A mean = mean_of[row], inv_std = inv_std_of[row];
        H::for_each(count, [&](int k, int j) {
            const A xhat = (values.kept[k][j] - mean) * inv_std;
            A& g = upstream.kept[k][j];
            dweight[k][j] += g * xhat;
            dbias[k][j] += g;
            g = inv_std * (g * scale.kept[k][j] - mean_g - xhat * mean_g_xhat);
        });
        upstream.store(dx + row * width + column, count);
    }
    const int64_t start = group * width + column;
    H::for_each(count, [&](int k, int j) {
        const int64_t i = start + (threadIdx.x + k * blockDim.x) * kSize + j;
        dweight_of[i] = dweight[k][j];
        dbias_of[i] = dbias[k][j];
    });
}

// Adds up the partial sums of each column: kRowsAtOnce threads share one, each in order, then a tree.
constexpr int kColumnsOfBlock = 32, kRowsAtOnce = 8;

template <typename W, typename A>
__global__ void __launch_bounds__(kColumnsOfBlock* kRowsAtOnce)
add_partials(const A* dweight_of, const A* dbias_of, W* dweight, W* dbias, int64_t partials, int64_t width) {
    __shared__ A sums[2][kRowsAtOnce][kColumnsOfBlock];
    const int64_t column = int64_t(blockIdx.x) * kColumnsOfBlock + threadIdx.x;
    A sum_weight = 0, sum_bias = 0;
    if (column < width) {
        for (int64_t p = threadIdx.y; p < partials; p += kRowsAtOnce) {
            sum_weight += dweight_of[p * width + column];
            sum_bias += dbias_of[p * width + column];
        }
    }
    sums[0][threadIdx.y][threadIdx.x] = sum_weight;
    sums[1][threadIdx.y][threadIdx.x] = sum_bias;
    __syncthreads();
    if (threadIdx.y || column >= width) return;
    for (int y = 1; y < kRowsAtOnce; y++) {
        sum_weight += sums[0][y][threadIdx.x];
        sum_bias += sums[1][y][threadIdx.x];
    }
    narrow(sum_weight, dweight[column]);
    narrow(sum_bias, dbias[column]);
}

// ------------------------------------------------------------------------------------------------------
// From shape to kernel.

unsigned grid(int64_t blocks) {
    TORCH_CHECK(blocks <= INT_MAX, "layer_norm_dropout: ", blocks, " blocks are more than a grid can have");
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
    TORCH_CHECK(tensor.device() == x.device() && tensor.scalar_type() == x.scalar_type(), "layer_norm_dropout: ", name,
                " is ", tensor.scalar_type(), " on ", tensor.device(), ", but must be ", x.scalar_type(), " on ",
                x.device());
}

void check_arguments(const torch::Tensor& x, const torch::Tensor& weight) {
    TORCH_CHECK(x.is_cuda(), "layer_norm_dropout: x must be a CUDA tensor, got one on ", x.device());
    const auto type = x.scalar_type();
    const bool narrow = type == torch::kHalf || type == torch::kBFloat16;
    TORCH_CHECK(narrow || type == torch::kFloat || type == torch::kDouble,
                "layer_norm_dropout: x must be float16, bfloat16, float32 or float64, got ", type);
    if (!narrow || weight.scalar_type() != torch::kFloat) check_like("weight", weight, x);
    TORCH_CHECK(weight.device() == x.device(), "layer_norm_dropout: weight is on ", weight.device(), ", but x is on ",
                x.device());
    TORCH_CHECK(weight.dim() >= 1 && x.dim() >= weight.dim() &&
                    x.sizes().slice(x.dim() - weight.dim()) == weight.sizes(),
                "layer_norm_dropout: the last dimensions of x ", x.sizes(), " must be normalized_shape ",
                weight.sizes());
}

template <typename T>
T* data(const torch::Tensor& tensor) {
    return static_cast<T*>(tensor.data_ptr());
}

// Rows of fp64, or of 16 bits that are no whole packs, are seldom met: one way through them is built, not three.
template <typename T>
constexpr bool is_seldom(int size) {
    return size == 1 && !std::is_same_v<T, float>;
}

template <typename T, typename W>
struct Forward {
    using A = Sum<T>;
    torch::Tensor x, weight, bias, y, mean, inv_std;
    int64_t rows, width;
    double eps;
    Dropout dropout;
    cudaStream_t stream;

    template <int kSize, int kPacks>
    void by_rows(int64_t packs) const {
        forward_rows<T, W, kSize, kPacks><<<grid(rows), threads_for(packs, kPacks), 0, stream>>>(
            data<T>(x), data<W>(weight), data<W>(bias), data<T>(y), data<A>(mean),
            data<A>(inv_std), static_cast<int>(packs), static_cast<A>(eps), dropout);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }

    template <int kSize>
    void by_chunks(int64_t packs) const {
        const int64_t chunks = (packs + kChunk - 1) / kChunk;
        const auto scratch = torch::empty({2, rows * chunks}, x.options().dtype(torch::kDouble));
        double *means = scratch.data_ptr<double>(), *squares = means + rows * chunks;
        chunk_statistics<T, kSize><<<grid(rows * chunks), kChunkThreads, 0, stream>>>(data<T>(x), means, squares,
                                                                                      packs, chunks);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        forward_chunks<T, W, kSize><<<grid(rows * chunks), kChunkThreads, 0, stream>>>(
            data<T>(x), data<W>(weight), data<W>(bias), data<T>(y), data<A>(mean),
            data<A>(inv_std), means, squares, packs, chunks, static_cast<A>(eps), dropout);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }

    template <int kSize>
    void run() const {
        const int64_t packs = width / kSize;
        if constexpr (!is_seldom<T>(kSize)) {
            if (packs <= 64) return by_rows<kSize, 1>(packs);
            if (packs <= 256) return by_rows<kSize, forward_packs(kSize) / 2>(packs);
            if (packs <= forward_packs(kSize) * kMaxThreads) return by_rows<kSize, forward_packs(kSize)>(packs);
        }
        by_chunks<kSize>(packs);
    }
};

template <typename T, typename W>
struct Backward {
    using A = Sum<T>;
    torch::Tensor dy, x, weight, mean, inv_std, dx, dweight, dbias;
    int64_t rows, width;
    Dropout dropout;
    cudaStream_t stream;

    static int64_t multiprocessors() {
        int device, count;
        C10_CUDA_CHECK(cudaGetDevice(&device));
        C10_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
        return count;
    }

    void add(const torch::Tensor& partials, int64_t count) const {
        const A* of = data<A>(partials);
        const dim3 blocks(grid((width + kColumnsOfBlock - 1) / kColumnsOfBlock));
        add_partials<W, A><<<blocks, dim3(kColumnsOfBlock, kRowsAtOnce), 0, stream>>>(
            of, of + count * width, data<W>(dweight), data<W>(dbias), count, width);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }

    template <int kSize, int kPacks>
    void by_rows(int64_t packs) const {
        const unsigned threads = threads_for(packs, kPacks);
        const int64_t resident = multiprocessors() * std::min<int64_t>(1024 / threads, 8);
        const int64_t blocks = std::min(rows, resident);
        const auto partials = torch::empty({2, blocks, width}, mean.options());
        A* of = data<A>(partials);
        backward_rows<T, W, kSize, kPacks><<<grid(blocks), threads, 0, stream>>>(
            data<T>(dy), data<T>(x), data<W>(weight), data<A>(mean), data<A>(inv_std),
            data<T>(dx), of, of + blocks * width, rows, static_cast<int>(packs), dropout);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        add(partials, blocks);
    }

    template <int kSize>
    void by_chunks(int64_t packs) const {
        const int64_t chunks = (packs + kChunk - 1) / kChunk;
        const auto sums = torch::empty({2, rows * chunks}, mean.options());
        A *sum_g = data<A>(sums), *sum_g_xhat = sum_g + rows * chunks;
        chunk_means<T, W, kSize><<<grid(rows * chunks), kChunkThreads, 0, stream>>>(
            data<T>(dy), data<T>(x), data<W>(weight), data<A>(mean), data<A>(inv_std), sum_g,
            sum_g_xhat, packs, chunks, dropout);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        // Enough groups to fill the device, and no more: each costs a row of partial sums.
        const int64_t wanted = std::min(rows, (4 * multiprocessors() + chunks - 1) / chunks);
        const int64_t group_rows = (rows + wanted - 1) / wanted, groups = (rows + group_rows - 1) / group_rows;
        const auto partials = torch::empty({2, groups, width}, mean.options());
        A *dweight_of = data<A>(partials), *dbias_of = dweight_of + groups * width;
        if constexpr (std::is_same_v<W, A>) {
            if (groups == 1) dweight_of = data<W>(dweight), dbias_of = data<W>(dbias);  // nothing to add up
        }
        backward_chunks<T, W, kSize><<<grid(chunks * groups), kChunkThreads, 0, stream>>>(
            data<T>(dy), data<T>(x), data<W>(weight), data<A>(mean), data<A>(inv_std), sum_g, sum_g_xhat,
            data<T>(dx), dweight_of, dbias_of, rows, packs, chunks, group_rows, dropout);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        if (dweight_of == data<A>(partials)) add(partials, groups);
    }

    template <int kSize>
    void run() const {
        const int64_t packs = width / kSize;
        if constexpr (!is_seldom<T>(kSize)) {
            if (packs <= 256) return by_rows<kSize, 1>(packs);
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
    if (x.scalar_type() == torch::kFloat) as(0.0f, 0.0f);
    else if (x.scalar_type() == torch::kDouble) as(0.0, 0.0);
    else if (x.scalar_type() == torch::kHalf) alike ? as(__half(), __half()) : as(__half(), 0.0f);
    else alike ? as(__nv_bfloat16(), __nv_bfloat16()) : as(__nv_bfloat16(), 0.0f);
}

Dropout dropout_of(double p, int64_t seed) {
    TORCH_CHECK(p >= 0.0 && p <= 1.0, "layer_norm_dropout: p must be from 0 to 1, got ", p);
    const auto dropped = static_cast<uint64_t>(p * 4294967296.0);  // of 2^32 numbers
    return {static_cast<uint64_t>(seed), dropped > 0, static_cast<uint32_t>(dropped - 1),
            p < 1.0 ? 1.0 / (1.0 - p) : 0.0};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> forward(at::Tensor x, at::Tensor weight, at::Tensor bias, double eps,
                                                       double p, int64_t seed) {
    check_arguments(x, weight);
    check_like("bias", bias, weight);
    TORCH_CHECK(bias.sizes() == weight.sizes(), "layer_norm_dropout: bias has shape ", bias.sizes(),
                " but weight has shape ", weight.sizes());
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    weight = weight.contiguous();
    bias = bias.contiguous();
    const int64_t width = weight.numel(), rows = width ? x.numel() / width : 0;
    const auto y = torch::empty(x.sizes(), x.options());
    const auto sums = x.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
    const auto statistics = torch::empty({2, rows}, x.options().dtype(sums));
    const auto mean = statistics[0], inv_std = statistics[1];
    if (rows == 0) return {y, mean, inv_std};  // a launch of no blocks is an error
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    run<Forward>(x, weight, aligned({&x, &weight, &bias}), x, weight, bias, y, mean, inv_std, rows, width, eps,
                 dropout_of(p, seed), stream);
    return {y, mean, inv_std};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(at::Tensor dy, at::Tensor x, at::Tensor weight,
                                                        at::Tensor mean, at::Tensor inv_std, double p, int64_t seed) {
    check_arguments(x, weight);
    check_like("dy", dy, x);
    TORCH_CHECK(dy.sizes() == x.sizes(), "layer_norm_dropout: dy has shape ", dy.sizes(), " but x has shape ",
                x.sizes());
    const c10::cuda::CUDAGuard guard(x.device());
    dy = dy.contiguous();
    x = x.contiguous();
    weight = weight.contiguous();
    const int64_t width = weight.numel(), rows = width ? x.numel() / width : 0;
    TORCH_CHECK(mean.numel() == rows && inv_std.numel() == rows, "layer_norm_dropout: ", rows, " rows, but ",
                mean.numel(), " means and ", inv_std.numel(), " inverse deviations");
    const auto dx = torch::empty(x.sizes(), x.options());
    if (rows == 0) {
        const auto none = torch::zeros(weight.sizes(), weight.options());
        return {dx, none, none.clone()};
    }
    const auto dweight = torch::empty(weight.sizes(), weight.options()), dbias = torch::empty_like(dweight);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    run<Backward>(x, weight, aligned({&dy, &x, &weight}), dy, x, weight, mean, inv_std, dx, dweight, dbias, rows, width,
                  dropout_of(p, seed), stream);
    return {dx, dweight, dbias};
}
"""

# Host code is not optimised unless it is asked for, and autograd's templates take twice the time then.
layer_norm_dropout = load_inline(
    name="layernorm_dropout_drawn_again",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    extra_cflags=["-O2"],
    extra_cuda_cflags=["-O2"],
).layer_norm_dropout


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, p=0.1, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = float(eps)
        self.p = float(p)

    def forward(self, x):
        parameters = self._parameters  # skips the search that self.weight would make
        p = self.p if self.training else 0.0
        return layer_norm_dropout(x, parameters["weight"], parameters["bias"], self.eps, p)
