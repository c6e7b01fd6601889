"""cuBLAS's matrix products against PyTorch's, in column-major form as cuBLAS takes them."""

from functools import partial

from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cublas_v2.h>

static int status_of(cublasStatus_t status) { return int(status); }
static int rows_apart(const torch::Tensor& t) { return int(t.stride(-2)); }
static cublasOperation_t operation(bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

// c = alpha op(a) op(b) + beta c for matrices in rows: cuBLAS sees the transposed ones, multiplied in the other order.
int64_t single(torch::Tensor a, torch::Tensor b, torch::Tensor c, bool ta, bool tb, double alpha, double beta) {
    cublasHandle_t handle;
    cublasCreate(&handle);
    cublasSetStream(handle, at::cuda::getCurrentCUDAStream());
    const int m = c.size(0), n = c.size(1), k = ta ? a.size(0) : a.size(1);
    int status;
    if (a.scalar_type() == torch::kDouble) {
        status = status_of(cublasDgemm(handle, operation(tb), operation(ta), n, m, k, &alpha, b.data_ptr<double>(),
                                       rows_apart(b), a.data_ptr<double>(), rows_apart(a), &beta, c.data_ptr<double>(),
                                       rows_apart(c)));
    } else {
        const float alpha_f = alpha, beta_f = beta;
        status = status_of(cublasSgemm(handle, operation(tb), operation(ta), n, m, k, &alpha_f, b.data_ptr<float>(),
                                       rows_apart(b), a.data_ptr<float>(), rows_apart(a), &beta_f, c.data_ptr<float>(),
                                       rows_apart(c)));
    }
    cublasDestroy(handle);
    return status;
}
static cudaDataType type_of(const torch::Tensor& t) {
    if (t.scalar_type() == torch::kHalf) return CUDA_R_16F;
    return t.scalar_type() == torch::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
}
int64_t mixed(torch::Tensor a, torch::Tensor b, torch::Tensor c) {
    const float alpha = 1, beta = 0;
    const int m = c.size(0), n = c.size(1), k = a.size(1);
    return cublasGemmEx(at::cuda::getCurrentCUDABlasHandle(), CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &alpha, b.data_ptr(),
                        type_of(b), n, a.data_ptr(), type_of(a), k, &beta, c.data_ptr(), type_of(c), n,
                        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT_TENSOR_OP);
}
// b is one matrix for all of a; alpha and beta lie on the device.
int64_t batched(torch::Tensor a, torch::Tensor b, torch::Tensor c, torch::Tensor scalars) {
    cublasHandle_t handle;
    cublasCreate(&handle);
    cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE);
    const int m = c.size(1), n = c.size(2), k = a.size(2);
    const float *alpha = scalars.data_ptr<float>(), *pa = a.data_ptr<float>(), *pb = b.data_ptr<float>();
    const auto status =
        cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, alpha, pb, n, 0, pa, k, m * k, alpha + 1,
                                  c.data_ptr<float>(), n, m * n, int(c.size(0)));
    cublasDestroy(handle);
    return status;
}
int64_t with_too_small_a_leading_dimension(torch::Tensor x) {
    const float one = 1;
    float* p = x.data_ptr<float>();
    auto handle = at::cuda::getCurrentCUDABlasHandle();
    return cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, p, 3, p, 4, &one, p, 4);
}
void into_too_little(torch::Tensor x, torch::Tensor small) {
    const float one = 1;
    const float* p = x.data_ptr<float>();
    auto handle = at::cuda::getCurrentCUDABlasHandle();
    cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 3, 4, &one, p, 4, p, 4, &one, small.data_ptr<float>(), 4);
}
void with_torchs_check(torch::Tensor x, int64_t leading) {
    const float one = 1;
    float* p = x.data_ptr<float>();
    auto handle = at::cuda::getCurrentCUDABlasHandle();
    const int rows = int(leading);
    TORCH_CUDABLAS_CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, p, rows, p, 4, &one, p, 4));
}
"""
DECLARATIONS = """
int64_t single(torch::Tensor a, torch::Tensor b, torch::Tensor c, bool ta, bool tb, double alpha, double beta);
int64_t mixed(torch::Tensor a, torch::Tensor b, torch::Tensor c);
int64_t batched(torch::Tensor a, torch::Tensor b, torch::Tensor c, torch::Tensor scalars);
int64_t with_too_small_a_leading_dimension(torch::Tensor x);
void into_too_little(torch::Tensor x, torch::Tensor small);
void with_torchs_check(torch::Tensor x, int64_t leading);
"""
FUNCTIONS = [
    "single", "mixed", "batched", "with_too_small_a_leading_dimension", "into_too_little", "with_torchs_check",
]  # fmt: skip


def _message(call):
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return ""


def run(torch):
    """Statements that must be true, a status and messages."""
    blas = load_inline(name="blas", cpp_sources=DECLARATIONS, cuda_sources=CUDA, functions=FUNCTIONS)
    true = {}
    for dtype in (torch.float32, torch.float64):
        for ta in (False, True):
            for tb in (False, True):
                a, b = torch.randn(3, 5, dtype=dtype), torch.randn(5, 7, dtype=dtype)
                c = torch.randn(3, 10, dtype=dtype)
                given = [(a.T.contiguous() if ta else a).cuda(), (b.T.contiguous() if tb else b).cuda(), c.cuda()]
                status = blas.single(given[0], given[1], given[2][:, :7], ta, tb, 2.0, 0.5)
                wanted = torch.cat([2 * (a @ b) + 0.5 * c[:, :7], c[:, 7:]], 1)  # what lies between rows stays
                true[f"{dtype} {ta} {tb}"] = status == 0 and torch.allclose(given[2].cpu(), wanted, atol=1e-5)
    for kind, into in ((torch.half, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.half, torch.half)):
        a, b = torch.randn(6, 8).to(kind), torch.randn(8, 4).to(kind)
        c = torch.full((6, 4), float("nan"), dtype=into, device="cuda")
        status = blas.mixed(a.cuda(), b.cuda(), c)
        wanted = (a.float() @ b.float()).to(into)
        true[f"{kind} into {into}"] = status == 0 and torch.allclose(
            c.cpu().float(), wanted.float(), rtol=1e-2, atol=1e-2
        )
    a, b, c = torch.randn(3, 4, 5), torch.randn(5, 6), torch.randn(3, 4, 6)
    given = c.cuda()
    status = blas.batched(a.cuda(), b.cuda(), given, torch.tensor([3.0, 1.0]).cuda())
    true["batched"] = status == 0 and torch.allclose(given.cpu(), 3 * (a @ b) + c, atol=1e-5)
    still, kept = torch.randn(4, 4, device="cuda"), torch.zeros(4, 4, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        blas.single(still, still, kept, False, False, 1.0, 1.0)
    before = kept.abs().sum().item()
    graph.replay()
    graph.replay()
    true["in a graph"] = before == 0 and torch.allclose(kept.cpu(), 2 * (still.cpu() @ still.cpu()), atol=1e-5)
    small = torch.zeros(8, device="cuda")
    return {
        "true": {name: bool(value) for name, value in true.items()},
        "refused": blas.with_too_small_a_leading_dimension(torch.zeros(16, device="cuda")),
        "checked": [_message(partial(blas.with_torchs_check, torch.zeros(16, device="cuda"), rows)) for rows in (4, 3)],
        "overrun": _message(lambda: blas.into_too_little(still, small)),
        "host": _message(lambda: blas.single(still.cpu(), still, kept, False, False, 1.0, 0.0)),
    }
