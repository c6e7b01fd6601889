"""Ways from Python to a kernel: a module of its own, TORCH_LIBRARY, accessors, autograd with a backward kernel."""

from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>
#include <torch/library.h>

// y = x * w for each column, with torch's accessors as kernel arguments.
template <typename T>
__global__ void scale_columns(torch::PackedTensorAccessor32<T, 2, torch::RestrictPtrTraits> x,
                              torch::PackedTensorAccessor64<T, 1> w, torch::PackedTensorAccessor32<T, 2> y) {
    const int row = blockIdx.x, column = blockIdx.y * blockDim.x + threadIdx.x;
    if (row < x.size(0) && column < x.size(1)) y[row][column] = x[row][column] * w[column];
}

// dw of the same: each thread adds up one column.
template <typename T>
__global__ void column_products(const T* dy, const T* x, T* dw, int rows, int columns) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    T sum = 0;
    for (int row = 0; row < rows; row++) sum += dy[row * columns + column] * x[row * columns + column];
    dw[column] = sum;
}

torch::Tensor scale(const torch::Tensor& x, const torch::Tensor& w) {
    TORCH_CHECK(x.is_cuda() && x.dim() == 2, "scale expects a CUDA matrix, but got ", x.dim(), " dimensions.");
    auto y = torch::empty(x.sizes(), x.options());
    const dim3 grid(x.size(0), (x.size(1) + 31) / 32);
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "scale", [&] {
        scale_columns<scalar_t><<<grid, 32>>>(x.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
                                              w.packed_accessor64<scalar_t, 1>(), y.packed_accessor32<scalar_t, 2>());
    });
    return y;
}
// torch's half and CUDA's own convert into each other.
__global__ void doubled(const at::Half* x, at::Half* y) {
    const __half own = x[threadIdx.x];
    y[threadIdx.x] = __hadd(own, static_cast<__half>(x[threadIdx.x]));
}
torch::Tensor twice(const torch::Tensor& x) {
    auto y = torch::empty_like(x);
    doubled<<<1, x.numel(), 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<at::Half>(), y.data_ptr<at::Half>());
    return y;
}
// The same in another stream, and in order.
torch::Tensor twice_beside(const torch::Tensor& x) {
    const auto caller = at::cuda::getCurrentCUDAStream(), side = at::cuda::getStreamFromPool();
    at::cuda::CUDAEvent begin, end;
    begin.record(caller);
    begin.block(side);
    torch::Tensor y;
    {
        const c10::cuda::CUDAStreamGuard guard(side);
        y = twice(x);
        end.record();
    }
    end.block(caller);
    return y;
}
torch::Tensor products(const torch::Tensor& dy, const torch::Tensor& x) {
    auto dw = torch::empty({x.size(1)}, x.options());
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "products", ([&] {
        column_products<scalar_t><<<(x.size(1) + 31) / 32, 32>>>(dy.data_ptr<scalar_t>(), x.data_ptr<scalar_t>(),
                                                                 dw.data_ptr<scalar_t>(), x.size(0), x.size(1));
    }));
    return dw;
}
TORCH_LIBRARY(emulator_test, m) { m.def("scale(Tensor x, Tensor w) -> Tensor"); }
TORCH_LIBRARY_IMPL(emulator_test, CUDA, m) { m.impl("scale", scale); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("scale", &scale, "scales columns");
    m.def("products", &products);
    m.def("twice", &twice);
    m.def("twice_beside", &twice_beside);
    m.attr("answer") = 42;
}
"""
extension = load_inline(name="bindings", cpp_sources="", cuda_sources=CUDA)


def _scaled(torch):
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(context, x, w):
            context.save_for_backward(x, w)
            return extension.scale(x, w)

        @staticmethod
        def backward(context, dy):
            x, w = context.saved_tensors
            dy = dy.contiguous()
            return extension.scale(dy, w), extension.products(dy, x)

    return Scaled.apply


def _message(call):
    try:
        call()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return "nothing was raised"


def run(torch):
    """Statements that must all be true, and a message."""
    x, w = torch.randn(5, 70).cuda(), torch.randn(70).cuda()
    expected = x.cpu() * w.cpu()
    turned = torch.randn(70, 5).cuda().t()
    scaled = _scaled(torch)
    leaf, weight = x.clone().requires_grad_(), w.clone().requires_grad_()
    (scaled(leaf, weight) ** 2).sum().backward()
    double = [t.double().requires_grad_() for t in (x[:2, :3], w[:3])]
    half = extension.scale(x.half(), w.half())
    return {
        "true": {
            "the module's own attribute": extension.answer == 42,
            "the module's docstring": "scales columns" in extension.scale.__doc__,
            "packed accessors": torch.equal(extension.scale(x, w).cpu(), expected),
            "accessors follow strides": torch.equal(extension.scale(turned, w).cpu(), turned.cpu() * w.cpu()),
            "TORCH_LIBRARY": torch.equal(torch.ops.emulator_test.scale(x, w).cpu(), expected),
            "gradient of x": torch.allclose(leaf.grad.cpu(), 2 * expected * w.cpu()),
            "gradient of w": torch.allclose(weight.grad.cpu(), (2 * expected * x.cpu()).sum(0), rtol=1e-4),
            "gradcheck": torch.autograd.gradcheck(scaled, double),
            "CUDA's half": torch.equal(extension.twice(w.half()).cpu(), 2 * w.half().cpu()),
            "another stream": torch.equal(extension.twice_beside(w.half()).cpu(), 2 * w.half().cpu()),
            "half": half.dtype == torch.float16 and torch.allclose(half.cpu().float(), expected, atol=2e-2),
        },
        "check": _message(lambda: extension.scale(w, w)),
    }
