"""Bias and GELU with its backward, each element read once in each: the bias' gradient grows in registers.

The idea: a thread owns one 16-byte pack of columns and goes down many rows, in the forward and in the backward. It
reads the bias once, and while it writes dx it adds up its columns' sums, so that the backward needs no second look at
x and dy. The threads of a block that share columns add up in shared memory, the blocks write a row of partial
sums each, and a small kernel adds those in a fixed order. Rows go to as many blocks as fill the device four times.

Numerics: 16-bit values are computed and summed in fp32, float64 in float64. In 16 bits the error function is a
polynomial times the exponential that its derivative needs anyway, and exponentials and divisions are the hardware's
fast ones.

Bytes moved: forward x and y once, backward x, dy and dx once; partial sums are a hundredth of that.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/python_variable.h>

at::Tensor forward(at::Tensor x, at::Tensor bias, bool tanh_form);
std::tuple<at::Tensor, at::Tensor> backward(at::Tensor dy, at::Tensor x, at::Tensor bias, bool tanh_form);

struct BiasGelu : torch::autograd::Function<BiasGelu> {
    static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& bias,
                              bool tanh_form) {
        context->save_for_backward({x, bias});
        context->saved_data["tanh_form"] = tanh_form;
        return ::forward(x, bias, tanh_form);
    }

    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list dy) {
        TORCH_CHECK(!at::GradMode::is_enabled(),
                    "bias_gelu can be differentiated once, but its backward was called with create_graph=True");
        const auto saved = context->get_saved_variables();
        auto [dx, dbias] = ::backward(dy[0], saved[0], saved[1], context->saved_data["tanh_form"].toBool());
        return {std::move(dx), std::move(dbias), at::Tensor()};
    }
};

static PyObject* python_bias_gelu(PyObject*, PyObject* const* given, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    TORCH_CHECK_TYPE(count == 3 && THPVariable_Check(given[0]) && THPVariable_Check(given[1]) && PyBool_Check(given[2]),
                     "bias_gelu takes the tensors x and bias, and whether the form is tanh's, a bool");
    return THPVariable_Wrap(
        BiasGelu::apply(THPVariable_Unpack(given[0]), THPVariable_Unpack(given[1]), given[2] == Py_True));
    END_HANDLE_TH_ERRORS
}

static PyMethodDef functions[] = {
    {"bias_gelu", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(python_bias_gelu)), METH_FASTCALL,
     "bias_gelu(x, bias, tanh_form) -> y"},
    {}};

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    if (PyModule_AddFunctions(m.ptr(), functions) != 0) throw py::error_already_set();
}
"""

CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <algorithm>
#include <climits>
#include <type_traits>

constexpr int kThreads = 256;

// Threads of a block side by side, at most; the others go down the rows. In the backward those that share columns leave
// one partial sum together, and another kernel reads what all blocks leave.
constexpr int kForwardColumns = 256, kBackwardColumns = 64;

// Rows that a thread has on their way.
constexpr int kForwardRows = 4, kBackwardRows = 2;

// So many times the blocks that the device has room for at once, at most.
constexpr int kFills = 4;

template <typename T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T, int kSize>
struct alignas(kSize * sizeof(T)) Pack {  // one load or store
    T at[kSize];
};

// One instruction each, to 2 ulp: what CUDA's own functions do beside it is for subnormal numbers.
__device__ float fast_exp2(float v) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(v));
    return result;
}

__device__ float fast_reciprocal(float v) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(v));
    return result;
}

// The share of v that GELU lets through: the normal distribution's probability below v, or the tanh form's
// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)). GELU's derivative is the share and v times the share's slope.
template <typename C>
struct Share {
    C share, slope_v;
};

template <typename T>
__device__ Share<Compute<T>> erf_form(Compute<T> v) {
    using C = Compute<T>;
    constexpr C density = C(0.39894228040143267794);  // at 0: 1 / sqrt(2 pi)
    if constexpr (sizeof(T) > 2) {
        return {C(0.5) * (C(1) + erf(v * C(0.70710678118654752440))), v * density * exp(C(-0.5) * v * v)};
    } else {
        // One exponential for both. The tail beyond |v| is t P(t) exp(-v^2 / 2) / 2 with t = 1 / (1 + p |v| / sqrt(2)),
        // known to 8e-8: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26. Coefficients are halved.
        const float bell = fast_exp2(-0.72134752044448170f * v * v);  // log2(e) / 2
        const float t = fast_reciprocal(fmaf(0.3275911f * 0.70710678118654752f, fabsf(v), 1.0f));
        const float polynomial = t * fmaf(t, fmaf(t, fmaf(t, fmaf(t, 0.5307027145f, -0.7265760135f), 0.7107068705f),
                                                  -0.142248368f), 0.127414796f);
        const float tail = polynomial * bell;
        return {v < 0.0f ? tail : 1.0f - tail, v * density * bell};
    }
}

// Where the share is 1 or 0 its slope is 0, also when u' is infinite.
template <typename T>
__device__ Share<Compute<T>> tanh_form(Compute<T> v) {
    using C = Compute<T>;
    constexpr C twice = C(2 * 0.79788456080286535588), cubic = C(0.044715);  // 2 sqrt(2 / pi)
    const C minus_2u = -twice * v * (C(1) + cubic * v * v);
    C share;
    if constexpr (sizeof(T) > 2) share = C(1) / (C(1) + exp(minus_2u));
    else share = fast_reciprocal(1.0f + fast_exp2(1.44269504088896341f * minus_2u));  // log2(e)
    const C spread = share * (C(1) - share);
    return {share, spread == C(0) ? C(0) : v * spread * twice * (C(1) + C(3) * cubic * v * v)};
}

template <typename T, bool kTanh>
__device__ Share<Compute<T>> share_of(Compute<T> v) {
    if constexpr (kTanh) return tanh_form<T>(v);
    return erf_form<T>(v);
}

// Which pack of columns and which rows a thread has: (threadIdx.x, blockIdx.x) say the columns, the rest the rows.
struct Place {
    int64_t column, first, step;

    __device__ Place()
        : column(int64_t(blockIdx.x) * blockDim.x + threadIdx.x),
          first(int64_t(blockIdx.y) * blockDim.y + threadIdx.y),
          step(int64_t(gridDim.y) * blockDim.y) {}
};

// kRows rows of a thread, all asked for before the first is used. Behind the last row it is asked for again: a load
// under a condition would let the compiler use the others first.
template <typename T, int kSize, int kRows>
struct Rows {
    Pack<T, kSize> kept[kRows];

    __device__ Rows(const Pack<T, kSize>* from, const Place& place, int64_t row, int64_t rows, int64_t packs) {
#pragma unroll
        for (int r = 0; r < kRows; r++) kept[r] = from[min(row + r * place.step, rows - 1) * packs + place.column];
    }
};

template <typename T, int kSize, bool kTanh>
__global__ void __launch_bounds__(kThreads)
forward_kernel(const Pack<T, kSize>* x, const Pack<T, kSize>* bias, Pack<T, kSize>* y, int64_t rows, int64_t packs) {
    using C = Compute<T>;
    const Place place;
    if (place.column >= packs) return;
    for (int64_t row = place.first; row < rows; row += kForwardRows * place.step) {
        Rows<T, kSize, kForwardRows> values(x, place, row, rows, packs);
        const Pack<T, kSize> shift = bias[place.column];
#pragma unroll
        for (int r = 0; r < kForwardRows; r++) {
            if (row + r * place.step >= rows) break;
            Pack<T, kSize>& pack = values.kept[r];
#pragma unroll
            for (int j = 0; j < kSize; j++) {
                const C v = static_cast<C>(pack.at[j]) + static_cast<C>(shift.at[j]);
                pack.at[j] = static_cast<T>(v * share_of<T, kTanh>(v).share);
            }
            y[(row + r * place.step) * packs + place.column] = pack;
        }
    }
}

template <typename T, int kSize, bool kTanh>
__global__ void __launch_bounds__(kThreads)
backward_kernel(const Pack<T, kSize>* dy, const Pack<T, kSize>* x, const Pack<T, kSize>* bias, Pack<T, kSize>* dx,
                Compute<T>* partials, int64_t rows, int64_t packs) {
    using C = Compute<T>;
    __shared__ C sums[kThreads * kSize];
    const Place place;
    const bool has = place.column < packs;
    C sum[kSize] = {};
    for (int64_t row = place.first; has && row < rows; row += kBackwardRows * place.step) {
        Rows<T, kSize, kBackwardRows> upstream(dy, place, row, rows, packs);
        const Rows<T, kSize, kBackwardRows> values(x, place, row, rows, packs);
        const Pack<T, kSize> shift = bias[place.column];
#pragma unroll
        for (int r = 0; r < kBackwardRows; r++) {
            if (row + r * place.step >= rows) break;
            Pack<T, kSize>& pack = upstream.kept[r];
#pragma unroll
            for (int j = 0; j < kSize; j++) {
                const C v = static_cast<C>(values.kept[r].at[j]) + static_cast<C>(shift.at[j]);
                const Share<C> passed = share_of<T, kTanh>(v);
                const C gradient = static_cast<C>(pack.at[j]) * (passed.share + passed.slope_v);
                sum[j] += gradient;
                pack.at[j] = static_cast<T>(gradient);
            }
            dx[(row + r * place.step) * packs + place.column] = pack;
        }
    }
    // The threads of a column, in order.
    const int mine = (threadIdx.y * blockDim.x + threadIdx.x) * kSize;
#pragma unroll
    for (int j = 0; j < kSize; j++) sums[mine + j] = sum[j];
    __syncthreads();
    if (threadIdx.y || !has) return;
    for (int y = 1; y < blockDim.y; y++) {
#pragma unroll
        for (int j = 0; j < kSize; j++) sum[j] += sums[(y * blockDim.x + threadIdx.x) * kSize + j];
    }
#pragma unroll
    for (int j = 0; j < kSize; j++) partials[(blockIdx.y * packs + place.column) * kSize + j] = sum[j];
}

// Adds up the partial sums of each column: kRowsAtOnce threads share one, each in order, then one in order.
constexpr int kColumnsOfBlock = 32, kRowsAtOnce = 32;

template <typename T>
__global__ void __launch_bounds__(kColumnsOfBlock* kRowsAtOnce)
add_partials(const Compute<T>* partials, T* dbias, int64_t count, int64_t width) {
    __shared__ Compute<T> sums[kRowsAtOnce][kColumnsOfBlock];
    const int64_t column = int64_t(blockIdx.x) * kColumnsOfBlock + threadIdx.x;
    Compute<T> sum = 0;
    if (column < width) {
        for (int64_t p = threadIdx.y; p < count; p += kRowsAtOnce) sum += partials[p * width + column];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || column >= width) return;
    for (int y = 1; y < kRowsAtOnce; y++) sum += sums[y][threadIdx.x];
    dbias[column] = static_cast<T>(sum);
}

void check_arguments(const torch::Tensor& x, const torch::Tensor& bias) {
    TORCH_CHECK(x.is_cuda(), "bias_gelu: x must be a CUDA tensor, got one on ", x.device());
    TORCH_CHECK(bias.device() == x.device() && bias.scalar_type() == x.scalar_type(), "bias_gelu: bias is ",
                bias.scalar_type(), " on ", bias.device(), ", but x is ", x.scalar_type(), " on ", x.device());
    TORCH_CHECK(bias.dim() == 1 && x.dim() >= 1 && x.size(-1) == bias.size(0), "bias_gelu: the last dimension of x ",
                x.sizes(), " must be that of bias ", bias.sizes());
}

int64_t multiprocessors() {
    int device, count;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    return count;
}

struct Shape {
    dim3 grid, block;

    // Blocks as wide as the row or `most_columns` packs. A thread has `at_once` rows, or a multiple, where there are so
    // many.
    Shape(int64_t rows, int64_t packs, int most_columns, int at_once) {
        int columns = 1;
        while (columns < most_columns && columns < packs) columns *= 2;
        block = dim3(columns, kThreads / columns);
        const int64_t across = (packs + columns - 1) / columns;
        TORCH_CHECK(across <= INT_MAX, "bias_gelu: ", packs, " packs in a row are more than a grid can have");
        const int64_t blocks = kFills * multiprocessors() * 2048 / kThreads;
        const int64_t down = (blocks + across - 1) / across, in_turn = down * block.y;
        const int64_t turns = (rows + in_turn - 1) / in_turn, each = (turns + at_once - 1) / at_once * at_once;
        const int64_t needed = (rows + block.y * each - 1) / (block.y * each);
        grid = dim3(static_cast<unsigned>(across), static_cast<unsigned>(std::min<int64_t>(needed, 65535)));
    }
};

template <typename T, int kSize>
Pack<T, kSize>* packs_at(const torch::Tensor& t) {
    return reinterpret_cast<Pack<T, kSize>*>(t.data_ptr());
}

template <typename T, int kSize, bool kTanh>
void run_forward(const torch::Tensor& x, const torch::Tensor& bias, const torch::Tensor& y) {
    const int64_t packs = bias.numel() / kSize, rows = x.numel() / bias.numel();
    const Shape shape(rows, packs, kForwardColumns, kForwardRows);
    forward_kernel<T, kSize, kTanh><<<shape.grid, shape.block, 0, c10::cuda::getCurrentCUDAStream()>>>(
        packs_at<T, kSize>(x), packs_at<T, kSize>(bias), packs_at<T, kSize>(y), rows, packs);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

template <typename T, int kSize, bool kTanh>
void run_backward(const torch::Tensor& dy, const torch::Tensor& x, const torch::Tensor& bias, const torch::Tensor& dx,
                  const torch::Tensor& dbias) {
    const int64_t width = bias.numel(), packs = width / kSize, rows = x.numel() / width;
    const Shape shape(rows, packs, kBackwardColumns, kBackwardRows);
    const auto stream = c10::cuda::getCurrentCUDAStream();
    const int64_t count = shape.grid.y;
    const auto partials = torch::empty({count, width}, x.options().dtype(c10::CppTypeToScalarType<Compute<T>>::value));
    auto* partials_at = partials.template data_ptr<Compute<T>>();
    backward_kernel<T, kSize, kTanh><<<shape.grid, shape.block, 0, stream>>>(
        packs_at<T, kSize>(dy), packs_at<T, kSize>(x), packs_at<T, kSize>(bias), packs_at<T, kSize>(dx), partials_at,
        rows, packs);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    const unsigned blocks = static_cast<unsigned>((width + kColumnsOfBlock - 1) / kColumnsOfBlock);
    add_partials<T><<<blocks, dim3(kColumnsOfBlock, kRowsAtOnce), 0, stream>>>(partials_at, dbias.data_ptr<T>(), count,
                                                                              width);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

bool aligned(std::initializer_list<torch::Tensor> tensors) {
    return std::all_of(tensors.begin(), tensors.end(),
                       [](const torch::Tensor& t) { return reinterpret_cast<uintptr_t>(t.data_ptr()) % 16 == 0; });
}

// Calls `run` with the type, the pack's size and the form as constants.
template <typename T, typename Run>
void by_pack(int64_t width, bool packed, bool tanh_form, Run run) {
    constexpr int kSize = 16 / sizeof(T);
    using std::integral_constant;
    if (packed && width % kSize == 0) {
        tanh_form ? run(T(), integral_constant<int, kSize>(), std::true_type())
                  : run(T(), integral_constant<int, kSize>(), std::false_type());
    } else {
        tanh_form ? run(T(), integral_constant<int, 1>(), std::true_type())
                  : run(T(), integral_constant<int, 1>(), std::false_type());
    }
}

template <typename Run>
void choose(const torch::Tensor& x, int64_t width, bool packed, bool tanh_form, Run run) {
    switch (x.scalar_type()) {
        case torch::kFloat: return by_pack<float>(width, packed, tanh_form, run);
        case torch::kDouble: return by_pack<double>(width, packed, tanh_form, run);
        case torch::kHalf: return by_pack<c10::Half>(width, packed, tanh_form, run);
        case torch::kBFloat16: return by_pack<c10::BFloat16>(width, packed, tanh_form, run);
        default: TORCH_CHECK(false, "bias_gelu: x must be of a floating type up to float64, got ", x.scalar_type());
    }
}

at::Tensor forward(at::Tensor x, at::Tensor bias, bool tanh_form) {
    check_arguments(x, bias);
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    bias = bias.contiguous();
    auto y = torch::empty(x.sizes(), x.options());
    if (y.numel() == 0) return y;  // a launch of no blocks is an error
    choose(x, bias.numel(), aligned({x, bias, y}), tanh_form, [&](auto zero, auto size, auto form) {
        run_forward<decltype(zero), decltype(size)::value, decltype(form)::value>(x, bias, y);
    });
    return y;
}

std::tuple<at::Tensor, at::Tensor> backward(at::Tensor dy, at::Tensor x, at::Tensor bias, bool tanh_form) {
    check_arguments(x, bias);
    TORCH_CHECK(dy.sizes() == x.sizes() && dy.scalar_type() == x.scalar_type(), "bias_gelu: dy is ",
                dy.scalar_type(), " of shape ", dy.sizes(), ", but x is ", x.scalar_type(), " of shape ", x.sizes());
    const c10::cuda::CUDAGuard guard(x.device());
    dy = dy.contiguous();
    x = x.contiguous();
    bias = bias.contiguous();
    auto dx = torch::empty(x.sizes(), x.options());
    if (x.numel() == 0) return {dx, torch::zeros(bias.sizes(), x.options())};
    auto dbias = torch::empty(bias.sizes(), x.options());
    choose(x, bias.numel(), aligned({dy, x, bias, dx}), tanh_form, [&](auto zero, auto size, auto form) {
        run_backward<decltype(zero), decltype(size)::value, decltype(form)::value>(dy, x, bias, dx, dbias);
    });
    return {dx, dbias};
}
"""

# Host code is not optimised unless it is asked for, and autograd's templates take twice the time then.
bias_gelu = load_inline(
    name="bias_gelu_train_columns",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    extra_cflags=["-O2"],
    extra_cuda_cflags=["-O2"],
).bias_gelu


class ModelNew(nn.Module):
    def __init__(self, features, approximate="none"):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))
        self.tanh_form = approximate == "tanh"

    def forward(self, x):
        # skips the search that self.bias would make
        return bias_gelu(x, self._parameters["bias"], self.tanh_form)
