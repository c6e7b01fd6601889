// cuBLAS's matrix products: each operand is converted to the type that is computed in, and PyTorch's BLAS multiplies.
#include "../../include/cublas_v2.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>

#include "../../include/emu/current_stream.h"
#include "../runtime/capture.h"
#include "../runtime/findings.h"
#include "../runtime/memory.h"
#include "operators.h"

struct cublasContext {
    cudaStream_t stream = nullptr;
    cublasPointerMode_t mode = CUBLAS_POINTER_MODE_HOST;
};

namespace emu {
bool is_pinned(uintptr_t address);
}

namespace emu_device {
namespace {
struct Operand {
    const void* data;
    cudaDataType type;
    int64_t rows, columns, leading, stride;   // stride: from one product of a batch to the next
};
struct Product {
    const char* call;
    cublasOperation_t of_a, of_b;
    int64_t m, n, k, count;
    Operand a, b, c;
    const void *alpha, *beta;
    bool is_double;
    bool of_device;      // alpha and beta lie there
    bool half_scalars;
};

size_t size_of(cudaDataType type) {
    switch (type) {
        case CUDA_R_16F:
        case CUDA_R_16BF: return 2;
        case CUDA_R_32F: return 4;
        case CUDA_R_64F: return 8;
        default: return 0;
    }
}

const char* at(const Operand& operand, int64_t product) {
    return static_cast<const char*>(operand.data) + product * operand.stride * int64_t(size_of(operand.type));
}

size_t bytes_of(const Operand& operand) {   // of one product
    return size_t((operand.columns - 1) * operand.leading + operand.rows) * size_of(operand.type);
}

[[noreturn]] void refuse(const char* kind, const std::string& message) {
    emu::RawFinding f;
    f.kind = kind;
    f.message = message;
    emu::keep(f);
    throw std::runtime_error("CUDA emulator: " + emu::sentence(f));
}

// In device memory, and ordered in the stream.
void touch(const char* call, const Operand& operand, int64_t count, bool write) {
    if (!operand.rows || !operand.columns) return;
    const auto first = reinterpret_cast<uintptr_t>(operand.data);
    const size_t bytes = size_t(at(operand, count - 1) - at(operand, 0)) + bytes_of(operand);
    if (emu::is_pinned(first)) return;
    EmuRegion region;
    if (!emu::region_of(first, &region)) {
        refuse("host_pointer", std::string(call) + " is given a matrix that is not in device memory.");
    }
    if (first < region.data || first + bytes > region.data + region.bytes) {
        refuse("out_of_bounds", std::string(call) + (write ? " writes " : " reads ") + std::to_string(bytes) +
                                    " bytes at byte " + std::to_string(int64_t(first - region.data)) + " of " +
                                    emu::called(region) + " of " + std::to_string(region.bytes) + " bytes, across its end.");
    }
    const char* race = emu_access(call, operand.data, bytes, write);
    if (race) throw std::runtime_error(std::string("CUDA emulator: ") + race);
}

at::Tensor as_tensor(const Operand& operand, int64_t count) {
    const at::ScalarType type = operand.type == CUDA_R_16F    ? at::kHalf
                                : operand.type == CUDA_R_16BF ? at::kBFloat16
                                : operand.type == CUDA_R_32F  ? at::kFloat
                                                              : at::kDouble;
    return at::from_blob(const_cast<void*>(operand.data), {count, operand.rows, operand.columns},
                         {operand.stride, 1, operand.leading}, at::TensorOptions(type));
}

at::Tensor operand_of(const Product& p, const Operand& operand, cublasOperation_t operation) {
    const at::Tensor matrices = as_tensor(operand, p.count).to(p.is_double ? at::kDouble : at::kFloat);
    return operation == CUBLAS_OP_N ? matrices : matrices.transpose(1, 2);
}

void multiply(const Product& p, double alpha, double beta) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const at::Tensor a = operand_of(p, p.a, p.of_a), b = operand_of(p, p.b, p.of_b), c = as_tensor(p.c, p.count);
    // What C holds is not read where beta is 0.
    const at::Tensor result = beta == 0 ? at::bmm(a, b).mul_(alpha) : at::baddbmm(c.to(a.scalar_type()), a, b, beta, alpha);
    c.copy_(result);
}

double scalar(const Product& p, const void* value) {
    if (p.is_double) return *static_cast<const double*>(value);
    return p.half_scalars ? double(float(*static_cast<const c10::Half*>(value))) : double(*static_cast<const float*>(value));
}

void run(const Product& p, double alpha, double beta) {
    touch(p.call, p.a, p.count, false);
    touch(p.call, p.b, p.count, false);
    touch(p.call, p.c, p.count, true);
    multiply(p, alpha, beta);
}

cudaError_t run_in(cudaStream_t stream, const std::function<void()>& work) {
    const InStream in(stream);
    work();
    return cudaSuccess;
}

bool is_valid(const Operand& o) { return size_of(o.type) && o.leading >= std::max<int64_t>(1, o.rows); }

cublasStatus_t issue(cudaStream_t stream, const Product& p) {
    std::function<void()> work;   // scalars of the host are read now, those of the device in their turn
    if (p.of_device) work = [p] { run(p, scalar(p, p.alpha), scalar(p, p.beta)); };
    else work = [p, alpha = scalar(p, p.alpha), beta = scalar(p, p.beta)] { run(p, alpha, beta); };
    const cudaError_t error = emu::is_captured(stream)
                                  ? emu::capture(stream, [work](cudaStream_t where) { return run_in(where, work); })
                                  : run_in(stream, work);
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t gemm(cublasHandle_t handle, const char* call, cublasOperation_t of_a, cublasOperation_t of_b, int64_t m,
                    int64_t n, int64_t k, const void* alpha, Operand a, Operand b, const void* beta, Operand c, int64_t count,
                    cublasComputeType_t compute) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (m < 0 || n < 0 || k < 0 || count < 0 || !alpha || !beta) return CUBLAS_STATUS_INVALID_VALUE;
    const bool is_double = compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC;
    const bool in_half = compute == CUBLAS_COMPUTE_16F || compute == CUBLAS_COMPUTE_16F_PEDANTIC;
    for (const Operand* one : {&a, &b, &c}) {
        if (!size_of(one->type) || (one->type == CUDA_R_64F) != is_double) {
            emu::refuse_unsupported((std::string(call) + " with these types").c_str());
        }
    }
    a.rows = of_a == CUBLAS_OP_N ? m : k, a.columns = of_a == CUBLAS_OP_N ? k : m;
    b.rows = of_b == CUBLAS_OP_N ? k : n, b.columns = of_b == CUBLAS_OP_N ? n : k;
    c.rows = m, c.columns = n;
    if (!is_valid(a) || !is_valid(b) || !is_valid(c)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!m || !n || !count) return CUBLAS_STATUS_SUCCESS;
    const Product product{call, of_a, of_b, m, n, k, count, a, b, c, alpha, beta, is_double,
                          handle->mode == CUBLAS_POINTER_MODE_DEVICE, in_half};
    return issue(handle->stream, product);
}
}  // namespace
}  // namespace emu_device

using emu_device::gemm;

extern "C" {
cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
    *handle = new cublasContext;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    delete handle;
    return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
    *stream = handle->stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
    handle->mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
    *mode = handle->mode;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }   // products are exact
const char* cublasGetStatusName(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
        case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
        default: return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}
const char* cublasGetStatusString(cublasStatus_t status) { return cublasGetStatusName(status); }

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b, int m, int n, int k,
                              const float* alpha, const float* a, int lda, const float* b, int ldb, const float* beta,
                              float* c, int ldc) {
    return gemm(handle, "cublasSgemm", of_a, of_b, m, n, k, alpha, {a, CUDA_R_32F, 0, 0, lda, 0}, {b, CUDA_R_32F, 0, 0, ldb, 0},
                beta, {c, CUDA_R_32F, 0, 0, ldc, 0}, 1, CUBLAS_COMPUTE_32F);
}
cublasStatus_t cublasDgemm_v2(cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b, int m, int n, int k,
                              const double* alpha, const double* a, int lda, const double* b, int ldb, const double* beta,
                              double* c, int ldc) {
    return gemm(handle, "cublasDgemm", of_a, of_b, m, n, k, alpha, {a, CUDA_R_64F, 0, 0, lda, 0}, {b, CUDA_R_64F, 0, 0, ldb, 0},
                beta, {c, CUDA_R_64F, 0, 0, ldc, 0}, 1, CUBLAS_COMPUTE_64F);
}
cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b, int m, int n,
                                         int k, const float* alpha, const float* a, int lda, long long stride_a,
                                         const float* b, int ldb, long long stride_b, const float* beta, float* c, int ldc,
                                         long long stride_c, int count) {
    return gemm(handle, "cublasSgemmStridedBatched", of_a, of_b, m, n, k, alpha, {a, CUDA_R_32F, 0, 0, lda, stride_a},
                {b, CUDA_R_32F, 0, 0, ldb, stride_b}, beta, {c, CUDA_R_32F, 0, 0, ldc, stride_c}, count, CUBLAS_COMPUTE_32F);
}
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b, int m, int n, int k,
                            const void* alpha, const void* a, cudaDataType type_a, int lda, const void* b,
                            cudaDataType type_b, int ldb, const void* beta, void* c, cudaDataType type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t) {
    return gemm(handle, "cublasGemmEx", of_a, of_b, m, n, k, alpha, {a, type_a, 0, 0, lda, 0}, {b, type_b, 0, 0, ldb, 0}, beta,
                {c, type_c, 0, 0, ldc, 0}, 1, compute);
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b, int m,
                                          int n, int k, const void* alpha, const void* a, cudaDataType type_a, int lda,
                                          long long stride_a, const void* b, cudaDataType type_b, int ldb,
                                          long long stride_b, const void* beta, void* c, cudaDataType type_c, int ldc,
                                          long long stride_c, int count, cublasComputeType_t compute, cublasGemmAlgo_t) {
    return gemm(handle, "cublasGemmStridedBatchedEx", of_a, of_b, m, n, k, alpha, {a, type_a, 0, 0, lda, stride_a},
                {b, type_b, 0, 0, ldb, stride_b}, beta, {c, type_c, 0, 0, ldc, stride_c}, count, compute);
}

// What torch gives an extension for its current stream.
void* emu_blas_handle() {
    static thread_local cublasContext own;
    own.stream = static_cast<cudaStream_t>(emu_current_stream());
    return &own;
}
}
