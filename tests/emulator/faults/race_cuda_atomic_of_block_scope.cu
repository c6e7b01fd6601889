// A flag whose cuda::atomic_ref has the scope of a block tells another block of data.
// Expected: data_race
// Place: unknown
#include <cuda/atomic>
__global__ void kernel(const float* x, float* y, unsigned* flags) {
    cuda::atomic_ref<unsigned, cuda::thread_scope_block> flag(flags[0]);
    if (blockIdx.x == 0) {
        y[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        if (threadIdx.x == 0) flag.store(1, cuda::memory_order_release);
    } else {
        if (threadIdx.x == 0) {
            while (flag.load(cuda::memory_order_acquire) == 0) {
            }
        }
        __syncthreads();
        y[64 + threadIdx.x] = 2 * y[threadIdx.x];
    }
}
void run(torch::Tensor x, torch::Tensor y) {
    auto flags = torch::zeros({1}, x.options().dtype(torch::kInt));
    kernel<<<2, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), reinterpret_cast<unsigned*>(flags.data_ptr<int>()));
}
