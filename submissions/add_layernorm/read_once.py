"""Residual add and LayerNorm, each element read once where a row fits a block's registers.

The idea: x and residual are loaded 16 bytes at a time into the registers of a warp or a block, added, and
their sum is written at once, so that stores flow while the row is reduced. The sum stays in registers and the
norm comes out of those: four touches of memory where three separate kernels make seven. All loads of a thread are
on their way before the first is used. Longer rows are split over blocks: one kernel adds, writes the sum and takes
the moments of chunks, the next merges those of its row and reads the sum back, from the last chunk to the first,
because the end of it is what L2 still holds. Widths and addresses that 16-byte packs do not fit go element by
element through the same code.

Numerics: the sum is rounded to the dtype of x before it is normalised, as PyTorch rounds it, so that both
results speak of the same values. Statistics are the mean of what is held, then deviations from it, their squares, and
their own mean: what rounding took from the first. Parts of a row are merged in float64, with the term between their
means.

Bytes moved: x, residual, sum and y once for rows in registers; the sum twice for split rows, as far as L2 does
not serve it.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

std::tuple<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                  const at::Tensor& weight, const at::Tensor& bias, double eps);

// Arguments are not converted by pybind11, which costs more than all checks.
static PyObject* python_add_layer_norm(PyObject*, PyObject* const* given, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    bool right = count == 5 && PyFloat_Check(given[4]);
    for (int i = 0; right && i < 4; i++) right = THPVariable_Check(given[i]);
    TORCH_CHECK_TYPE(right, "add_layer_norm takes the tensors x, residual, weight and bias, and eps, a float");
    const auto [y, total] =
        add_layer_norm(THPVariable_Unpack(given[0]), THPVariable_Unpack(given[1]), THPVariable_Unpack(given[2]),
                       THPVariable_Unpack(given[3]), PyFloat_AS_DOUBLE(given[4]));
    return Py_BuildValue("(NN)", THPVariable_Wrap(y), THPVariable_Wrap(total));
    END_HANDLE_TH_ERRORS
}

static PyMethodDef functions[] = {
    {"add_layer_norm", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(python_add_layer_norm)),
     METH_FASTCALL, "add_layer_norm(x, residual, weight, bias, eps) -> y, x + residual"},
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
#include <climits>

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

template <typename T, int kSize>
struct alignas(kSize * sizeof(T)) Pack {  // one load or store
    T at[kSize];
};

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

template <typename T>
__device__ T added(T a, T b) {
    return static_cast<T>(static_cast<float>(a) + static_cast<float>(b));
}

// What a thread holds of a row: kLoads packs, kThreads apart, as far as the row (or chunk) reaches. A place behind
// its end is loaded from its last pack: a load under a condition would let the compiler use the others first.
template <typename T, int kSize, int kThreads, int kLoads>
struct Held {
    using P = Pack<T, kSize>;
    P kept[kLoads];
    int packs;  // of the row or chunk
    int left;   // packs behind this thread's first; negative where it has none

    // Of one input.
    __device__ Held(const P* row, int64_t packs_left)
        : packs(int(min(packs_left, int64_t(kThreads) * kLoads))), left(packs - 1 - int(threadIdx.x)) {
#pragma unroll
        for (int k = 0; k < kLoads; k++) kept[k] = row[place(k)];
    }

    // Of the sum of two, which is written to `total`.
    __device__ Held(const P* x, const P* residual, P* total, int64_t packs_left) : Held(x, packs_left) {
        P other[kLoads];
#pragma unroll
        for (int k = 0; k < kLoads; k++) other[k] = residual[place(k)];
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
#pragma unroll
            for (int j = 0; j < kSize; j++) kept[k].at[j] = added(kept[k].at[j], other[k].at[j]);
            if (has(k)) total[place(k)] = kept[k];
        }
    }

    __device__ int place(int k) const { return int(threadIdx.x) + min(k * kThreads, left); }

    __device__ bool has(int k) const { return k * kThreads <= left; }

    __device__ float sum() const {
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
            float more = 0.0f;
#pragma unroll
            for (int j = 0; j < kSize; j++) more += static_cast<float>(kept[k].at[j]);
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
            Two more = {0.0f, 0.0f};
#pragma unroll
            for (int j = 0; j < kSize; j++) {
                const float d = static_cast<float>(kept[k].at[j]) - mean;
                more = {more.first + d, fmaf(d, d, more.second)};
            }
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

    __device__ void write(P* out, const P* weight, const P* bias, const Statistics& row) {
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
            keep_packed(kept[k]);
            if (!has(k)) continue;
            const int i = threadIdx.x + k * kThreads;
            const P scale = weight[i], shift = bias[i];
            P result;
#pragma unroll
            for (int j = 0; j < kSize; j++) {
                const float normalised = ((static_cast<float>(kept[k].at[j]) - row.mean) - row.low) * row.inv_std;
                result.at[j] = static_cast<T>(
                    fmaf(normalised, static_cast<float>(scale.at[j]), static_cast<float>(shift.at[j])));
            }
            out[i] = result;
        }
    }
};

template <typename T, int kSize>
struct Tensors {
    const Pack<T, kSize>*x, *residual, *weight, *bias;
    Pack<T, kSize>*y, *total;
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
// A row in the registers of kThreads threads: of a block, or of a warp, of which a block then has two.

constexpr int kThreadsOfMultiprocessor = 1024;  // leaves each thread 64 registers

constexpr int block_of(int threads) { return threads == kWarp ? 2 * kWarp : threads; }

template <typename T, int kSize, int kThreads, int kLoads>
__global__ void __launch_bounds__(block_of(kThreads), kThreadsOfMultiprocessor / block_of(kThreads))
whole_rows(Tensors<T, kSize> t, int64_t rows, int packs, float eps) {
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    wait_for_turn();
    if (row >= rows) return;  // a whole warp, and only where warps do not wait for each other
    const int64_t first = row * packs;
    Held<T, kSize, kThreads, kLoads> held(t.x + first, t.residual + first, t.total + first, packs);
    __shared__ float sums[kThreads / kWarp];
    __shared__ Two deviations[kThreads / kWarp];
    const Moments m = held.moments(sums, deviations);
    held.write(t.y + first, t.weight, t.bias,
               {m.mean, m.low, rsqrtf(__fdividef(m.squares, float(packs) * kSize) + eps)});
}

// ------------------------------------------------------------------------------------------------------
// A row in chunks, a block for each. Blocks cannot wait for each other: a second kernel does instead.

constexpr int kSplitThreads = 256, kSplitLoads = 4;  // of two inputs
constexpr int64_t kChunk = kSplitThreads * kSplitLoads;  // packs

template <typename T, int kSize>
__global__ void __launch_bounds__(kSplitThreads, 4)
add_chunks(Tensors<T, kSize> t, Moments* of_chunks, int64_t packs, int chunks) {
    __shared__ float sums[kSplitThreads / kWarp];
    __shared__ Two deviations[kSplitThreads / kWarp];
    const int64_t row = blockIdx.x / chunks, first = blockIdx.x % chunks * kChunk, at = row * packs + first;
    Held<T, kSize, kSplitThreads, kSplitLoads> held(t.x + at, t.residual + at, t.total + at, packs - first);
    const Moments m = held.moments(sums, deviations);
    if (threadIdx.x == 0) of_chunks[blockIdx.x] = m;
}

// Merges the moments of a row's chunks in the first warp of a block, and gives all of its threads the statistics.
template <int kSize>
__device__ Statistics merged(const Moments* of_chunks, int chunks, int64_t packs, float eps, Statistics& of_row) {
    if (threadIdx.x < kWarp) {
        const double width = double(packs) * kSize;
        double sum = 0.0, squares = 0.0;
        for (int c = threadIdx.x; c < chunks; c += kWarp) {
            sum += min(packs - c * kChunk, kChunk) * kSize * (double(of_chunks[c].mean) + of_chunks[c].low);
        }
        const double mean = warp_sum(sum) / width;
        for (int c = threadIdx.x; c < chunks; c += kWarp) {
            const double between = double(of_chunks[c].mean) + of_chunks[c].low - mean;
            squares += of_chunks[c].squares + min(packs - c * kChunk, kChunk) * kSize * between * between;
        }
        squares = warp_sum(squares);
        const float high = static_cast<float>(mean);
        if (threadIdx.x == 0) {
            of_row = {high, static_cast<float>(mean - high), rsqrtf(static_cast<float>(squares / width) + eps)};
        }
    }
    __syncthreads();
    return of_row;
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kSplitThreads, 4)
write_chunks(Tensors<T, kSize> t, const Moments* of_chunks, int64_t packs, int chunks, float eps) {
    __shared__ Statistics of_row;
    const unsigned block = gridDim.x - 1 - blockIdx.x;  // from the end, which L2 still has
    const int64_t row = block / chunks, first = block % chunks * kChunk, at = row * packs + first;
    Held<T, kSize, kSplitThreads, kSplitLoads> held(t.total + at, packs - first);
    const Statistics statistics = merged<kSize>(of_chunks + row * chunks, chunks, packs, eps, of_row);
    held.write(t.y + at, t.weight + first, t.bias + first, statistics);
}

// ------------------------------------------------------------------------------------------------------
// From shape to kernel.

// Not through torch's dispatcher, which each call would pay for.
at::Tensor empty(at::IntArrayRef sizes, at::ScalarType type, c10::Device device) {
    return at::detail::empty_cuda(sizes, type, device, std::nullopt);
}

struct Call {
    const at::Tensor &x, &residual, &weight, &bias, &y, &total;
    int64_t rows, width;
    float eps;
    cudaStream_t stream;

    template <typename T, int kSize>
    Tensors<T, kSize> tensors() const {
        const auto pointer = [](const at::Tensor& t) { return static_cast<Pack<T, kSize>*>(t.data_ptr()); };
        return {pointer(x), pointer(residual), pointer(weight), pointer(bias), pointer(y), pointer(total)};
    }
};

template <typename T, int kSize, int kThreads, int kLoads>
void whole(const Call& call) {
    const int rows_of_block = block_of(kThreads) / kThreads;
    const int64_t blocks = (call.rows + rows_of_block - 1) / rows_of_block;
    TORCH_CHECK(blocks <= INT_MAX, "add_layer_norm: ", call.rows, " rows are more than a grid can have");
    launch_early(whole_rows<T, kSize, kThreads, kLoads>, dim3(static_cast<unsigned>(blocks)),
                 dim3(kThreads, rows_of_block), call.stream, call.template tensors<T, kSize>(), call.rows,
                 static_cast<int>(call.width / kSize), call.eps);
}

template <typename T, int kSize>
void split(const Call& call) {
    const int64_t packs = call.width / kSize, chunks = (packs + kChunk - 1) / kChunk, blocks = call.rows * chunks;
    TORCH_CHECK(blocks <= INT_MAX, "add_layer_norm: ", blocks, " chunks are more than a grid can have");
    const at::Tensor scratch = empty({3 * blocks}, at::kFloat, call.x.device());
    auto* of_chunks = static_cast<Moments*>(scratch.data_ptr());
    const auto tensors = call.template tensors<T, kSize>();
    add_chunks<T, kSize><<<static_cast<unsigned>(blocks), kSplitThreads, 0, call.stream>>>(
        tensors, of_chunks, packs, static_cast<int>(chunks));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    write_chunks<T, kSize><<<static_cast<unsigned>(blocks), kSplitThreads, 0, call.stream>>>(
        tensors, of_chunks, packs, static_cast<int>(chunks), call.eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// The one place that chooses: element size of a load, threads of a row, and packs that each of them holds.
template <typename T>
void choose(const Call& call) {
    constexpr int kSize = sizeof(uint4) / sizeof(T);
    uintptr_t bits = 0;
    for (const auto* tensor : {&call.x, &call.residual, &call.weight, &call.bias, &call.y, &call.total}) {
        bits |= reinterpret_cast<uintptr_t>(tensor->data_ptr());
    }
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
    if (packs <= 4096) return whole<T, kSize, 1024, 4>(call);
    split<T, kSize>(call);
}

void check_parameter(const char* name, const at::Tensor& parameter, const at::Tensor& x) {
    TORCH_CHECK(parameter.device() == x.device() && parameter.scalar_type() == x.scalar_type(), "add_layer_norm: ",
                name, " is ", parameter.scalar_type(), " on ", parameter.device(), ", but x is ", x.scalar_type(),
                " on ", x.device());
}

void check_arguments(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                     const at::Tensor& bias) {
    TORCH_CHECK(x.is_cuda(), "add_layer_norm: x must be a CUDA tensor, got one on ", x.device());
    check_parameter("residual", residual, x);
    check_parameter("weight", weight, x);
    check_parameter("bias", bias, x);
    TORCH_CHECK(residual.sizes() == x.sizes(), "add_layer_norm: residual has shape ", residual.sizes(),
                " but x has shape ", x.sizes());
    TORCH_CHECK(weight.dim() >= 1 && x.dim() >= weight.dim() &&
                    x.sizes().slice(x.dim() - weight.dim()) == weight.sizes(),
                "add_layer_norm: the last dimensions of x ", x.sizes(), " must be normalized_shape ", weight.sizes());
    TORCH_CHECK(bias.sizes() == weight.sizes(), "add_layer_norm: bias has shape ", bias.sizes(),
                " but weight has shape ", weight.sizes());
}

std::tuple<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                  const at::Tensor& weight, const at::Tensor& bias, double eps) {
    check_arguments(x, residual, weight, bias);
    const c10::cuda::CUDAGuard guard(x.device());
    if (!x.is_contiguous() || !residual.is_contiguous() || !weight.is_contiguous() || !bias.is_contiguous()) {
        return add_layer_norm(x.contiguous(), residual.contiguous(), weight.contiguous(), bias.contiguous(), eps);
    }
    at::Tensor y = empty(x.sizes(), x.scalar_type(), x.device());
    at::Tensor total = empty(x.sizes(), x.scalar_type(), x.device());
    if (y.numel() == 0) return {y, total};  // a launch of no blocks is an error

    const int64_t width = weight.numel();
    const Call call = {x,     residual,          weight, bias,
                       y,     total,             x.numel() / width,
                       width, static_cast<float>(eps), c10::cuda::getCurrentCUDAStream()};
    switch (x.scalar_type()) {
        case torch::kFloat: choose<float>(call); break;
        case torch::kHalf: choose<c10::Half>(call); break;
        case torch::kBFloat16: choose<c10::BFloat16>(call); break;
        default: TORCH_CHECK(false, "add_layer_norm: x must be float32, float16 or bfloat16, got ", x.scalar_type());
    }
    return {y, total};
}
"""

# Host code is not optimised unless it is asked for.
add_layer_norm = load_inline(
    name="add_layernorm_read_once", cpp_sources=CPP, cuda_sources=CUDA, extra_cflags=["-O2"], extra_cuda_cflags=["-O2"]
).add_layer_norm


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = float(eps)

    def forward(self, x, residual):
        parameters = self._parameters  # skips the search that self.weight would make
        return add_layer_norm(x, residual, parameters["weight"], parameters["bias"], self.eps)
