"""RMSNorm's training step, each element read once: rows in registers, columns' sums in registers.

The idea: the backward needs x and dy for the row's mean of g xhat, for dx, and for the columns' sums. A block keeps
its row of both in registers and goes on to the next row that is its own with the same threads on the same
columns, so that dweight grows in registers, too. A second kernel adds up one row of partial sums for each block, in
a fixed order. Rows that do not fit are cut into chunks, a block for each: one kernel sums a chunk, the next adds
up the chunks of its row and writes; in the backward that block goes down many rows, for the sake of the columns.

Numerics: squares are summed in the type of x, a few dozen in a thread, then in a tree.

Bytes moved: forward x and y once, backward x, dy and dx once; for rows over 16,384 (backward 8,192) floats x and
dy twice.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <algorithm>
#include <climits>

constexpr int kWarp = 32, kMaxThreads = 512;
constexpr int kForwardPacks = 8, kBackwardPacks = 4;  // of a row in a thread's registers, at most
constexpr unsigned kAllLanes = 0xffffffffu;

template <typename T, int kSize>
struct alignas(kSize * sizeof(T)) Pack {  // one load or store
    T at[kSize];
};

template <typename T>
__device__ T warp_sum(T value) {
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(kAllLanes, value, mask);
    return value;
}

// The sum over the block's threads, returned to all of them.
template <typename T>
__device__ T block_sum(T value) {
    __shared__ T sums[kMaxThreads / kWarp];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    value = warp_sum(value);
    __syncthreads();  // the previous sums may still be being read
    if (lane == 0) sums[warp] = value;
    __syncthreads();
    return warp_sum(lane < blockDim.x / kWarp ? sums[lane] : T(0));
}

// kPacks packs of a row for each thread, blockDim.x apart.
template <typename T, int kSize, int kPacks>
struct Held {
    Pack<T, kSize> kept[kPacks];

    __device__ Held(const T* from, int packs) {
        const auto* in = reinterpret_cast<const Pack<T, kSize>*>(from);
#pragma unroll
        for (int k = 0; k < kPacks; k++) {
            const int i = threadIdx.x + k * blockDim.x;
            if (i < packs) kept[k] = in[i];
        }
    }

    // use(k, j, element of the row) for each element that this thread holds.
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
            if (i < packs) out[i] = kept[k];
        }
    }
};

// ------------------------------------------------------------------------------------------------------
// Rows that a block holds.

template <typename T, int kSize, int kPacks>
__global__ void __launch_bounds__(kMaxThreads)
forward_rows(const T* x, const T* weight, T* y, T* inv_rms_of, int packs, T eps) {
    const int64_t start = int64_t(blockIdx.x) * packs * kSize;
    Held<T, kSize, kPacks> held(x + start, packs);
    T squares = 0;
    held.for_each(packs, [&](int k, int j) { squares += held.kept[k].at[j] * held.kept[k].at[j]; });
    const T inv_rms = T(1) / sqrt(block_sum(squares) / (T(packs) * kSize) + eps);
    const Held<T, kSize, kPacks> scale(weight, packs);
    held.for_each(packs, [&](int k, int j) { held.kept[k].at[j] *= inv_rms * scale.kept[k].at[j]; });
    held.store(y + start, packs);
    if (threadIdx.x == 0) inv_rms_of[blockIdx.x] = inv_rms;
}

template <typename T, int kSize, int kPacks>
__global__ void __launch_bounds__(kMaxThreads)
backward_rows(const T* dy, const T* x, const T* weight, const T* inv_rms_of, T* dx, T* dweight_of, int64_t rows,
              int packs) {
    using H = Held<T, kSize, kPacks>;
    const int64_t width = int64_t(packs) * kSize;
    const H scale(weight, packs);
    T dweight[kPacks][kSize] = {};
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        H upstream(dy + row * width, packs), values(x + row * width, packs);
        const T inv_rms = inv_rms_of[row];
        T sum = 0;
        H::for_each(packs, [&](int k, int j) {
            T& xhat = values.kept[k].at[j];
            T& g = upstream.kept[k].at[j];
            xhat *= inv_rms;
            dweight[k][j] += g * xhat;
            g *= scale.kept[k].at[j];
            sum += g * xhat;
        });
        const T mean = block_sum(sum) / width;
        H::for_each(packs, [&](int k, int j) {
            T& g = upstream.kept[k].at[j];
            g = inv_rms * (g - values.kept[k].at[j] * mean);
        });
        upstream.store(dx + row * width, packs);
    }
    const int64_t start = blockIdx.x * width;
    H::for_each(packs, [&](int k, int j) {
        dweight_of[start + (threadIdx.x + k * blockDim.x) * kSize + j] = dweight[k][j];
    });
}

// ------------------------------------------------------------------------------------------------------
// Rows in chunks of kChunk packs. Blocks cannot wait for each other: a second kernel does instead.

constexpr int kChunkThreads = 256, kChunkPacks = 4, kChunk = kChunkThreads * kChunkPacks;

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

template <typename T, int kSize>
__global__ void __launch_bounds__(kChunkThreads)
chunk_squares(const T* x, T* squares_of, int64_t packs, int64_t chunks) {
    const int64_t row = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
    const int count = packs_of(chunk, packs);
    const Held<T, kSize, kChunkPacks> held(x + (row * packs + chunk * kChunk) * kSize, count);
    T squares = 0;
    held.for_each(count, [&](int k, int j) { squares += held.kept[k].at[j] * held.kept[k].at[j]; });
    squares = block_sum(squares);
    if (threadIdx.x == 0) squares_of[blockIdx.x] = squares;
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kChunkThreads)
forward_chunks(const T* x, const T* weight, T* y, T* inv_rms_of, const T* squares_of, int64_t packs, int64_t chunks,
               T eps) {
    const int64_t row = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
    const T inv_rms = T(1) / sqrt(row_sum(squares_of, row, chunks) / (T(packs) * kSize) + eps);
    const int count = packs_of(chunk, packs);
    const int64_t column = chunk * kChunk * kSize, start = row * packs * kSize + column;
    Held<T, kSize, kChunkPacks> held(x + start, count);
    const Held<T, kSize, kChunkPacks> scale(weight + column, count);
    held.for_each(count, [&](int k, int j) { held.kept[k].at[j] *= inv_rms * scale.kept[k].at[j]; });
    held.store(y + start, count);
    if (chunk == 0 && threadIdx.x == 0) inv_rms_of[row] = inv_rms;
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kChunkThreads)
chunk_sums(const T* dy, const T* x, const T* weight, const T* inv_rms_of, T* sum_of, int64_t packs, int64_t chunks) {
    const int64_t row = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
    const int64_t column = chunk * kChunk * kSize, start = row * packs * kSize + column;
    const int count = packs_of(chunk, packs);
    const Held<T, kSize, kChunkPacks> upstream(dy + start, count), values(x + start, count);
    const Held<T, kSize, kChunkPacks> scale(weight + column, count);
    const T inv_rms = inv_rms_of[row];
    T sum = 0;
    upstream.for_each(count, [&](int k, int j) {
        sum += upstream.kept[k].at[j] * scale.kept[k].at[j] * (values.kept[k].at[j] * inv_rms);
    });
    sum = block_sum(sum);
    if (threadIdx.x == 0) sum_of[blockIdx.x] = sum;
}

// Block (chunk, group) has the columns of one chunk in every row of one group.
template <typename T, int kSize>
__global__ void __launch_bounds__(kChunkThreads)
backward_chunks(const T* dy, const T* x, const T* weight, const T* inv_rms_of, const T* sum_of, T* dx, T* dweight_of,
                int64_t rows, int64_t packs, int64_t chunks, int64_t group_rows) {
    using H = Held<T, kSize, kChunkPacks>;
    const int64_t chunk = blockIdx.x % chunks, group = blockIdx.x / chunks, width = packs * kSize;
    const int64_t column = chunk * kChunk * kSize;
    const int count = packs_of(chunk, packs);
    const H scale(weight + column, count);
    T dweight[kChunkPacks][kSize] = {};
    const int64_t last = min((group + 1) * group_rows, rows);
    for (int64_t row = group * group_rows; row < last; row++) {
        const T mean = row_sum(sum_of, row, chunks) / width, inv_rms = inv_rms_of[row];
        H upstream(dy + row * width + column, count), values(x + row * width + column, count);
        H::for_each(count, [&](int k, int j) {
            const T xhat = values.kept[k].at[j] * inv_rms;
            T& g = upstream.kept[k].at[j];
            dweight[k][j] += g * xhat;
            g = inv_rms * (g * scale.kept[k].at[j] - xhat * mean);
        });
        upstream.store(dx + row * width + column, count);
    }
    const int64_t start = group * width + column;
    H::for_each(count, [&](int k, int j) {
        dweight_of[start + (threadIdx.x + k * blockDim.x) * kSize + j] = dweight[k][j];
    });
}

// Adds up the partial sums of each column: kRowsAtOnce threads share one, each in order, then one in order.
constexpr int kColumnsOfBlock = 32, kRowsAtOnce = 8;

template <typename T>
__global__ void __launch_bounds__(kColumnsOfBlock* kRowsAtOnce)
add_partials(const T* dweight_of, T* dweight, int64_t partials, int64_t width) {
    __shared__ T sums[kRowsAtOnce][kColumnsOfBlock];
    const int64_t column = int64_t(blockIdx.x) * kColumnsOfBlock + threadIdx.x;
    T sum = 0;
    if (column < width) {
        for (int64_t p = threadIdx.y; p < partials; p += kRowsAtOnce) sum += dweight_of[p * width + column];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || column >= width) return;
    for (int y = 1; y < kRowsAtOnce; y++) sum += sums[y][threadIdx.x];
    dweight[column] = sum;
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
    TORCH_CHECK(x.scalar_type() == torch::kFloat || x.scalar_type() == torch::kDouble,
                "rms_norm: x must be float32 or float64, got ", x.scalar_type());
    check_like("weight", weight, x);
    TORCH_CHECK(weight.dim() >= 1 && x.dim() >= weight.dim() &&
                    x.sizes().slice(x.dim() - weight.dim()) == weight.sizes(),
                "rms_norm: the last dimensions of x ", x.sizes(), " must be normalized_shape ", weight.sizes());
}

struct Forward {
    torch::Tensor x, weight, y, inv_rms;
    int64_t rows, width;
    double eps;
    cudaStream_t stream;

    template <typename T, int kSize, int kPacks>
    void by_rows(int64_t packs) const {
        forward_rows<T, kSize, kPacks><<<grid(rows), threads_for(packs, kPacks), 0, stream>>>(
            x.data_ptr<T>(), weight.data_ptr<T>(), y.data_ptr<T>(), inv_rms.data_ptr<T>(), static_cast<int>(packs),
            static_cast<T>(eps));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }

    template <typename T, int kSize>
    void by_chunks(int64_t packs) const {
        const int64_t chunks = (packs + kChunk - 1) / kChunk;
        const auto squares = torch::empty({rows * chunks}, x.options());
        chunk_squares<T, kSize><<<grid(rows * chunks), kChunkThreads, 0, stream>>>(
            x.data_ptr<T>(), squares.data_ptr<T>(), packs, chunks);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        forward_chunks<T, kSize><<<grid(rows * chunks), kChunkThreads, 0, stream>>>(
            x.data_ptr<T>(), weight.data_ptr<T>(), y.data_ptr<T>(), inv_rms.data_ptr<T>(), squares.data_ptr<T>(),
            packs, chunks, static_cast<T>(eps));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }

    template <typename T, int kSize>
    void run() const {
        const int64_t packs = width / kSize;
        if (packs <= 256) return by_rows<T, kSize, 1>(packs);
        if (packs <= kForwardPacks * kMaxThreads) return by_rows<T, kSize, kForwardPacks>(packs);
        by_chunks<T, kSize>(packs);
    }
};

struct Backward {
    torch::Tensor dy, x, weight, inv_rms, dx, dweight;
    int64_t rows, width;
    cudaStream_t stream;

    static int64_t multiprocessors() {
        int device, count;
        C10_CUDA_CHECK(cudaGetDevice(&device));
        C10_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
        return count;
    }

    template <typename T>
    void add(const torch::Tensor& partials, int64_t count) const {
        add_partials<T><<<grid((width + kColumnsOfBlock - 1) / kColumnsOfBlock), dim3(kColumnsOfBlock, kRowsAtOnce), 0,
                          stream>>>(partials.data_ptr<T>(), dweight.data_ptr<T>(), count, width);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }

    template <typename T, int kSize, int kPacks>
    void by_rows(int64_t packs) const {
        const unsigned threads = threads_for(packs, kPacks);
        const int64_t resident = multiprocessors() * std::min<int64_t>(1024 / threads, 8);
        const int64_t blocks = std::min(rows, resident);
        const auto partials = torch::empty({blocks, width}, x.options());
        backward_rows<T, kSize, kPacks><<<grid(blocks), threads, 0, stream>>>(
            dy.data_ptr<T>(), x.data_ptr<T>(), weight.data_ptr<T>(), inv_rms.data_ptr<T>(), dx.data_ptr<T>(),
            partials.data_ptr<T>(), rows, static_cast<int>(packs));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        add<T>(partials, blocks);
    }

    template <typename T, int kSize>
    void by_chunks(int64_t packs) const {
        const int64_t chunks = (packs + kChunk - 1) / kChunk;
        const auto sums = torch::empty({rows * chunks}, x.options());
        chunk_sums<T, kSize><<<grid(rows * chunks), kChunkThreads, 0, stream>>>(
            dy.data_ptr<T>(), x.data_ptr<T>(), weight.data_ptr<T>(), inv_rms.data_ptr<T>(), sums.data_ptr<T>(), packs,
            chunks);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        // Enough groups to fill the device, and no more: each costs a row of partial sums.
        const int64_t wanted = std::min(rows, (4 * multiprocessors() + chunks - 1) / chunks);
        const int64_t group_rows = (rows + wanted - 1) / wanted, groups = (rows + group_rows - 1) / group_rows;
        const auto partials = groups == 1 ? dweight : torch::empty({groups, width}, x.options());
        backward_chunks<T, kSize><<<grid(chunks * groups), kChunkThreads, 0, stream>>>(
            dy.data_ptr<T>(), x.data_ptr<T>(), weight.data_ptr<T>(), inv_rms.data_ptr<T>(), sums.data_ptr<T>(),
            dx.data_ptr<T>(), partials.data_ptr<T>(), rows, packs, chunks, group_rows);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        if (groups > 1) add<T>(partials, groups);
    }

    template <typename T, int kSize>
    void run() const {
        const int64_t packs = width / kSize;
        if (packs <= 256) return by_rows<T, kSize, 1>(packs);
        if (packs <= kBackwardPacks * kMaxThreads) return by_rows<T, kSize, kBackwardPacks>(packs);
        by_chunks<T, kSize>(packs);
    }
};

template <typename Call>
void run(const Call& call, bool packed) {
    if (call.x.scalar_type() == torch::kFloat) {
        packed && call.width % 4 == 0 ? call.template run<float, 4>() : call.template run<float, 1>();
    } else {
        packed && call.width % 2 == 0 ? call.template run<double, 2>() : call.template run<double, 1>();
    }
}

std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor weight, double eps) {
    check_arguments(x, weight);
    const c10::cuda::CUDAGuard guard(x.device());
    const int64_t width = weight.numel(), rows = width ? x.numel() / width : 0;
    const Forward call = {x.contiguous(), weight.contiguous(), torch::empty(x.sizes(), x.options()),
                          torch::empty({rows}, x.options()), rows, width, eps, c10::cuda::getCurrentCUDAStream()};
    if (rows) run(call, aligned({&call.x, &call.weight}));  // a launch of no blocks is an error
    return {call.y, call.inv_rms};
}

std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor x, torch::Tensor weight, torch::Tensor inv_rms) {
    check_arguments(x, weight);
    check_like("dy", dy, x);
    TORCH_CHECK(dy.sizes() == x.sizes(), "rms_norm: dy has shape ", dy.sizes(), " but x has shape ", x.sizes());
    const c10::cuda::CUDAGuard guard(x.device());
    const int64_t width = weight.numel(), rows = width ? x.numel() / width : 0;
    TORCH_CHECK(inv_rms.numel() == rows, "rms_norm: ", rows, " rows, but ", inv_rms.numel(), " inverse roots");
    const auto dweight = rows ? torch::empty(weight.sizes(), x.options()) : torch::zeros(weight.sizes(), x.options());
    const Backward call = {dy.contiguous(), x.contiguous(), weight.contiguous(), inv_rms,
                           torch::empty(x.sizes(), x.options()), dweight, rows, width,
                           c10::cuda::getCurrentCUDAStream()};
    if (rows) run(call, aligned({&call.dy, &call.x, &call.weight}));
    return {call.dx, call.dweight};
}
"""

CPP = """
std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor weight, double eps);
std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor x, torch::Tensor weight, torch::Tensor inv_rms);
"""

extension = load_inline(name="rmsnorm_registers", cpp_sources=CPP, cuda_sources=CUDA, functions=["forward", "backward"])


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        y, inv_rms = extension.forward(x, weight, eps)
        ctx.save_for_backward(x, weight, inv_rms)
        return y

    @staticmethod
    def backward(ctx, dy):
        return *extension.backward(dy, *ctx.saved_tensors), None


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return RMSNorm.apply(x, self.weight, self.eps)
