// The order is in the operations on the flag: a release by PTX, a release by cuda::atomic_ref.
// Expected: silent
#include <cuda/atomic>
__global__ void kernel(const float* x, float* y, int* flags) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        y[0] = x[5];
        asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(flags), "r"(1) : "memory");
        return;
    }
    cuda::atomic_ref<int, cuda::thread_scope_device> second(flags[1]);
    int seen = 0;
    if (blockIdx.x == 1) {
        while (!seen) asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(flags) : "memory");
        y[1] = 2 * y[0];
        second.store(1, cuda::memory_order_release);
        return;
    }
    while (!second.load(cuda::memory_order_acquire)) {
    }
    y[2] = y[0] + y[1];
}
void run(torch::Tensor x, torch::Tensor y) {
    auto flags = torch::zeros({2}, x.options().dtype(torch::kInt));
    kernel<<<3, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), flags.data_ptr<int>());
}
