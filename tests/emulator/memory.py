"""A card of 80 GiB, from C++, from Python and from a kernel. Nothing of what is refused is touched."""

from torch.utils.cpp_extension import load_inline

CUDA = r"""
__global__ void ask(size_t bytes, int* answer) {
    void* memory = malloc(bytes);
    *answer = memory != nullptr;
    free(memory);
}

std::string asked(int64_t bytes) {
    void* memory = &bytes;
    const cudaError_t error = cudaMalloc(&memory, size_t(bytes));
    const bool remembered = cudaGetLastError() == error;
    if (error == cudaSuccess) cudaFree(memory);
    return std::string(cudaGetErrorName(error)) + (memory ? "" : ", null") + (remembered ? "" : ", forgotten");
}
std::vector<int64_t> free_and_total() {
    size_t free_bytes, total;
    cudaMemGetInfo(&free_bytes, &total);
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, 0);
    return {int64_t(free_bytes), int64_t(total), int64_t(properties.totalGlobalMem)};
}
void ask_in_kernel(int64_t bytes, torch::Tensor answer) { ask<<<1, 1>>>(size_t(bytes), answer.data_ptr<int>()); }
"""
DECLARATIONS = """
std::string asked(int64_t bytes);
std::vector<int64_t> free_and_total();
void ask_in_kernel(int64_t bytes, torch::Tensor answer);
"""
FUNCTIONS = ["asked", "free_and_total", "ask_in_kernel"]
extension = load_inline(name="memory", cpp_sources=DECLARATIONS, cuda_sources=CUDA, functions=FUNCTIONS)


def _in_kernel(torch, nbytes):
    answer = torch.full((1,), -1, dtype=torch.int32, device="cuda")
    extension.ask_in_kernel(nbytes, answer)
    return answer.item()


def run(torch):
    """What each way of asking is answered, and what is left before and after."""
    empty, total, of_properties = extension.free_and_total()
    held = torch.empty(16 << 20, dtype=torch.uint8, device="cuda")
    left = extension.free_and_total()[0]
    try:
        torch.empty(left + 1, dtype=torch.uint8, device="cuda")
        raised = ""
    except torch.cuda.OutOfMemoryError as error:
        raised = str(error)
    return {
        "sizes": [total, of_properties, torch.cuda.get_device_properties(0).total_memory, empty - left],
        "mem_get_info": torch.cuda.mem_get_info() == (left, total),
        "asked": [extension.asked(nbytes) for nbytes in (1 << 20, left + 1, total, -1)],
        "raised": raised,
        "in a kernel": [_in_kernel(torch, nbytes) for nbytes in (1 << 10, left + 1)],
        "kept": held.numel(),
    }
