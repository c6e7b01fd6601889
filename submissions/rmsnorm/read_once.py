"""RMSNorm, each element read once where a row fits the registers of one block, or of all blocks.

The idea: a row of up to 64 KB lives in the registers of a warp or a block, loaded 16 bytes at a time by as
many small blocks as the multiprocessors hold, so that some load while others reduce. All loads of a thread are
on their way before the first is used. A longer row lives in the registers of many blocks, which are all on the
GPU at once and send each other their sums through memory. A row too long for that is read twice: one kernel sums
the squares of chunks, the next adds up those of its row and writes a chunk, from the last to the first, because
the end of x is what L2 still holds. Widths and addresses that 16-byte packs do not fit go element by element
through the same code.

Small inputs cost a call, an allocation and a launch. The function is given to Python without pybind11's
conversion of arguments, which costs more than all checks.

Numerics: squares are summed in fp32, a few dozen in a thread, then in a tree.

Bytes moved: x and y once; x twice for rows that all blocks together cannot hold.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

static PyObject* python_rms_norm(PyObject*, PyObject* const* given, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    TORCH_CHECK_TYPE(count == 3 && THPVariable_Check(given[0]) && THPVariable_Check(given[1]) &&
                         PyFloat_Check(given[2]),
                     "rms_norm takes the tensors x and weight, and eps, a float");
    return THPVariable_Wrap(
        rms_norm(THPVariable_Unpack(given[0]), THPVariable_Unpack(given[1]), PyFloat_AS_DOUBLE(given[2])));
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

__device__ float warp_sum(float value) {
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(kAllLanes, value, mask);
    return value;
}

// The sum over the kThreads threads of a row, returned to all of them. `sums` is shared memory that no sum before
// the last one has used, so one barrier is enough.
template <int kThreads>
__device__ float row_sum(float value, float (&sums)[kThreads / kWarp]) {
    value = warp_sum(value);
    if constexpr (kThreads > kWarp) {
        const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
        if (lane == 0) sums[warp] = value;
        __syncthreads();
        value = warp_sum(lane < kThreads / kWarp ? sums[lane] : 0.0f);
    }
    return value;
}

// What a thread holds of a row: kLoads packs, kThreads apart, as far as the row (or chunk) reaches. A place behind
// its end is loaded from its last pack: a load under a condition would let the compiler use the others first.
template <typename T, int kSize, int kThreads, int kLoads>
struct Held {
    using P = Pack<T, kSize>;
    P kept[kLoads];
    int left;  // packs behind this thread's first; negative where it has none

    __device__ Held(const P* row, int64_t packs)
        : left(int(min(packs, int64_t(kThreads) * kLoads)) - 1 - int(threadIdx.x)) {
#pragma unroll
        for (int k = 0; k < kLoads; k++) kept[k] = row[int(threadIdx.x) + min(k * kThreads, left)];
    }

    __device__ bool has(int k) const { return k * kThreads <= left; }

    __device__ float squares() const {
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
            float more = 0.0f;
#pragma unroll
            for (int j = 0; j < kSize; j++) {
                const float value = static_cast<float>(kept[k].at[j]);
                more = fmaf(value, value, more);
            }
            sum += has(k) ? more : 0.0f;
        }
        return sum;
    }

    // scale_of(k): the weight of the k-th pack.
    template <typename Scale>
    __device__ void write(P* out, float inverse_rms, Scale scale_of) {
#pragma unroll
        for (int k = 0; k < kLoads; k++) {
            keep_packed(kept[k]);
            if (!has(k)) continue;
            const P scale = scale_of(k);
            P result;
#pragma unroll
            for (int j = 0; j < kSize; j++) {
                const float normalised = static_cast<float>(kept[k].at[j]) * inverse_rms;
                result.at[j] = static_cast<T>(normalised * static_cast<float>(scale.at[j]));
            }
            out[int(threadIdx.x) + k * kThreads] = result;
        }
    }

    __device__ void write(P* out, const P* weight, float inverse_rms) {
        write(out, inverse_rms, [&](int k) { return weight[int(threadIdx.x) + k * kThreads]; });
    }

    __device__ void write(P* out, const Held& weight, float inverse_rms) {
        write(out, inverse_rms, [&](int k) { return weight.kept[k]; });
    }
};

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
whole_rows(const Pack<T, kSize>* x, const Pack<T, kSize>* weight, Pack<T, kSize>* y, int64_t rows, int packs,
           float eps) {
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    wait_for_turn();
    if (row >= rows) return;  // a whole warp, and only where warps do not wait for each other
    Held<T, kSize, kThreads, kLoads> held(x + row * packs, packs);
    const auto inverse_rms = [&] {
        __shared__ float sums[kThreads / kWarp];
        return rsqrtf(row_sum<kThreads>(held.squares(), sums) / (float(packs) * kSize) + eps);
    };
    if constexpr (kThreads == kWarp) {  // short rows, whose weight has room beside them and is asked for with them
        const Held<T, kSize, kThreads, kLoads> scales(weight, packs);
        held.write(y + row * packs, scales, inverse_rms());
    } else {
        held.write(y + row * packs, weight, inverse_rms());
    }
}

// ------------------------------------------------------------------------------------------------------
// joined_rows: a row in chunks, which blocks hold until they have each other's sums. They are all on the GPU at
// once, a row has no more chunks than there are blocks, and each goes through its chunks in order: so whoever waits
// waits for a block that does not wait for a later row.

constexpr int kJoinedThreads = 512, kJoinedLoads = 8, kJoinedBlocks = 2;  // of a multiprocessor
constexpr int64_t kJoinedChunk = kJoinedThreads * kJoinedLoads;           // packs

constexpr unsigned kNoMail = ~0u;  // a NaN, which no sum is sent as

__device__ void send(float* mail, float sum) {
    *static_cast<volatile float*>(mail) = sum == sum ? sum : __int_as_float(0x7fc00000);
}

__device__ float wait_for(const float* mail) {
    const auto* word = reinterpret_cast<const volatile unsigned*>(mail);
    unsigned bits = *word;
    while (bits == kNoMail) {
        __nanosleep(32);
        bits = *word;
    }
    return __uint_as_float(bits);
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kJoinedThreads, kJoinedBlocks)
joined_rows(const Pack<T, kSize>* x, const Pack<T, kSize>* weight, Pack<T, kSize>* y, float* mail, int all_chunks,
            int64_t packs, int chunks, float eps) {
    __shared__ float of_chunk[kJoinedThreads / kWarp], of_row[kJoinedThreads / kWarp];
    for (int chunk = blockIdx.x; chunk < all_chunks; chunk += gridDim.x) {
        const int64_t row = chunk / chunks, first = chunk % chunks * kJoinedChunk;
        Held<T, kSize, kJoinedThreads, kJoinedLoads> held(x + row * packs + first, packs - first);
        float squares = row_sum<kJoinedThreads>(held.squares(), of_chunk);
        if (threadIdx.x == 0) send(mail + chunk, squares);
        squares = 0.0f;
        for (int c = threadIdx.x; c < chunks; c += kJoinedThreads) squares += wait_for(mail + row * chunks + c);
        squares = row_sum<kJoinedThreads>(squares, of_row);
        held.write(y + row * packs + first, weight + first, rsqrtf(squares / (float(packs) * kSize) + eps));
    }
}

// ------------------------------------------------------------------------------------------------------
// A row in chunks, a block for each, for rows of which not all chunks fit the GPU at once: a second kernel waits.

constexpr int kSplitThreads = 256, kSplitLoads = 8;
constexpr int64_t kChunk = kSplitThreads * kSplitLoads;  // packs

template <typename T, int kSize>
__global__ void __launch_bounds__(kSplitThreads, 3)
sum_chunks(const Pack<T, kSize>* x, float* of_chunks, int64_t packs, int chunks) {
    const int64_t row = blockIdx.x / chunks, first = blockIdx.x % chunks * kChunk;
    Held<T, kSize, kSplitThreads, kSplitLoads> held(x + row * packs + first, packs - first);
    __shared__ float sums[kSplitThreads / kWarp];
    const float squares = row_sum<kSplitThreads>(held.squares(), sums);
    if (threadIdx.x == 0) of_chunks[blockIdx.x] = squares;
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kSplitThreads, 3)
write_chunks(const Pack<T, kSize>* x, const Pack<T, kSize>* weight, Pack<T, kSize>* y, const float* of_chunks,
             int64_t packs, int chunks, float eps) {
    const unsigned block = gridDim.x - 1 - blockIdx.x;  // from the end, which L2 still has
    const int64_t row = block / chunks, first = block % chunks * kChunk;
    Held<T, kSize, kSplitThreads, kSplitLoads> held(x + row * packs + first, packs - first);
    float squares = 0.0f;
    for (int c = threadIdx.x; c < chunks; c += kSplitThreads) squares += of_chunks[row * chunks + c];
    __shared__ float sums[kSplitThreads / kWarp];
    squares = row_sum<kSplitThreads>(squares, sums);
    held.write(y + row * packs + first, weight + first, rsqrtf(squares / (float(packs) * kSize) + eps));
}

// ------------------------------------------------------------------------------------------------------
// From shape to kernel.

struct Call {
    const void *x, *weight;
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
    TORCH_CHECK(blocks <= INT_MAX, "rms_norm: ", call.rows, " rows are more than a grid can have");
    launch_early(whole_rows<T, kSize, kThreads, kLoads>, dim3(static_cast<unsigned>(blocks)),
                 dim3(kThreads, rows_of_block), call.stream, static_cast<const P*>(call.x),
                 static_cast<const P*>(call.weight), static_cast<P*>(call.y), call.rows,
                 static_cast<int>(call.width / kSize), call.eps);
}

// Whether the blocks that fit the GPU at once could take the rows; then they have.
template <typename T, int kSize>
bool joined(const Call& call) {
    using P = Pack<T, kSize>;
    int64_t packs = call.width / kSize;
    const int64_t chunks_of_row = (packs + kJoinedChunk - 1) / kJoinedChunk;
    int of_multiprocessor = 0, multiprocessors = 0;
    C10_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_multiprocessor, joined_rows<T, kSize>,
                                                                 kJoinedThreads, 0));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, call.device.index()));
    const int64_t resident = int64_t(of_multiprocessor) * multiprocessors;
    if (chunks_of_row > resident || call.rows * chunks_of_row > INT_MAX / 2) return false;
    int chunks = static_cast<int>(chunks_of_row), all_chunks = static_cast<int>(call.rows) * chunks;
    const at::Tensor sums = empty({all_chunks}, at::kFloat, call.device);
    float* mail = static_cast<float*>(sums.data_ptr());
    C10_CUDA_CHECK(cudaMemsetAsync(mail, 0xff, all_chunks * sizeof(float), call.stream));
    const auto *x = static_cast<const P*>(call.x), *weight = static_cast<const P*>(call.weight);
    auto* y = static_cast<P*>(call.y);
    float eps = call.eps;
    void* arguments[] = {&x, &weight, &y, &mail, &all_chunks, &packs, &chunks, &eps};
    const auto blocks = static_cast<unsigned>(std::min<int64_t>(resident, all_chunks));
    C10_CUDA_CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&joined_rows<T, kSize>), dim3(blocks),
                                               dim3(kJoinedThreads), arguments, 0, call.stream));
    return true;
}

template <typename T, int kSize>
void split(const Call& call) {
    using P = Pack<T, kSize>;
    const int64_t packs = call.width / kSize, chunks = (packs + kChunk - 1) / kChunk, blocks = call.rows * chunks;
    TORCH_CHECK(blocks <= INT_MAX, "rms_norm: ", blocks, " chunks are more than a grid can have");
    const at::Tensor scratch = empty({blocks}, at::kFloat, call.device);
    auto* of_chunks = static_cast<float*>(scratch.data_ptr());
    sum_chunks<T, kSize><<<static_cast<unsigned>(blocks), kSplitThreads, 0, call.stream>>>(
        static_cast<const P*>(call.x), of_chunks, packs, static_cast<int>(chunks));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    write_chunks<T, kSize><<<static_cast<unsigned>(blocks), kSplitThreads, 0, call.stream>>>(
        static_cast<const P*>(call.x), static_cast<const P*>(call.weight), static_cast<P*>(call.y), of_chunks, packs,
        static_cast<int>(chunks), call.eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// The one place that chooses: element size of a load, threads of a row, and packs that each of them holds.
template <typename T>
void choose(const Call& call) {
    constexpr int kSize = sizeof(uint4) / sizeof(T);
    const auto bits = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.weight) |
                      reinterpret_cast<uintptr_t>(call.y);
    if (bits % sizeof(uint4) || call.width % kSize) {
        if (call.width <= 128) return whole<T, 1, kWarp, 4>(call);
        if (call.width <= 2048) return whole<T, 1, 256, 8>(call);
        return split<T, 1>(call);
    }
    const int64_t packs = call.width / kSize;
    if (packs <= 128) return whole<T, kSize, kWarp, 4>(call);
    if constexpr (sizeof(T) == 4) {
        if (packs <= 192) return whole<T, kSize, kWarp, 6>(call);
    }
    if (packs <= 256) return whole<T, kSize, 128, 2>(call);
    if (packs <= 512) return whole<T, kSize, 128, 4>(call);
    if (packs <= 1024) return whole<T, kSize, 256, 4>(call);
    if (packs <= 2048) return whole<T, kSize, 512, 4>(call);
    if (packs <= 4096) return whole<T, kSize, 1024, 4>(call);
    if (!joined<T, kSize>(call)) split<T, kSize>(call);
}

void check_arguments(const at::Tensor& x, const at::Tensor& weight) {
    TORCH_CHECK(x.is_cuda(), "rms_norm: x must be a CUDA tensor, got one on ", x.device());
    TORCH_CHECK(weight.device() == x.device() && weight.scalar_type() == x.scalar_type(), "rms_norm: weight is ",
                weight.scalar_type(), " on ", weight.device(), ", but x is ", x.scalar_type(), " on ", x.device());
    TORCH_CHECK(weight.dim() >= 1 && x.dim() >= weight.dim() &&
                    x.sizes().slice(x.dim() - weight.dim()) == weight.sizes(),
                "rms_norm: the last dimensions of x ", x.sizes(), " must be normalized_shape ", weight.sizes());
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
    check_arguments(x, weight);
    const c10::cuda::CUDAGuard guard(x.device());
    if (!x.is_contiguous() || !weight.is_contiguous()) return rms_norm(x.contiguous(), weight.contiguous(), eps);
    at::Tensor y = empty(x.sizes(), x.scalar_type(), x.device());
    if (y.numel() == 0) return y;  // a launch of no blocks is an error

    const int64_t width = weight.numel();
    const Call call = {x.data_ptr(), weight.data_ptr(),       y.data_ptr(), x.numel() / width,
                       width,        static_cast<float>(eps), x.device(),   c10::cuda::getCurrentCUDAStream()};
    switch (x.scalar_type()) {
        case torch::kFloat: choose<float>(call); break;
        case torch::kHalf: choose<c10::Half>(call); break;
        case torch::kBFloat16: choose<c10::BFloat16>(call); break;
        default: TORCH_CHECK(false, "rms_norm: x must be float32, float16 or bfloat16, got ", x.scalar_type());
    }
    return y;
}
"""

# Host code is not optimised unless it is asked for.
rms_norm = load_inline(
    name="rmsnorm_read_once", cpp_sources=CPP, cuda_sources=CUDA, extra_cflags=["-O2"], extra_cuda_cflags=["-O2"]
).rms_norm


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.eps = float(eps)

    def forward(self, x):
        return rms_norm(x, self._parameters["weight"], self.eps)  # skips the search that self.weight would make
