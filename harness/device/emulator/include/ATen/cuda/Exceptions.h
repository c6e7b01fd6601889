// Shadows torch's header of this name, which needs CUDA libraries.
#pragma once
#include <cublas_v2.h>
#include <emu/torch_cuda.h>

#define TORCH_CUDABLAS_CHECK(EXPR)                                                                                   \
    do {                                                                                                             \
        const cublasStatus_t emu_status = EXPR;                                                                      \
        TORCH_CHECK(emu_status == CUBLAS_STATUS_SUCCESS, "CUDA error: ", cublasGetStatusName(emu_status),            \
                    " when calling `" #EXPR "`");                                                                    \
    } while (0)
