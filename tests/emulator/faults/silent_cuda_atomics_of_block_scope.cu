// cuda::atomic in shared memory and cuda::atomic_ref with the scope of a block, each in one block alone.
// Expected: silent
#include <cuda/atomic>
__global__ void kernel(const float* x, float* y, int* counts) {
    __shared__ float data;
    __shared__ cuda::atomic<int, cuda::thread_scope_block> ready;
    if (threadIdx.x == 0) ready = 0;
    __syncthreads();
    cuda::atomic_ref<int, cuda::thread_scope_block> count(counts[blockIdx.x]);
    count.fetch_add(1, cuda::memory_order_relaxed);
    count.fetch_max(1, cuda::memory_order_relaxed);
    int expected = 0;
    count.compare_exchange_strong(expected, 0);
    if (threadIdx.x == 0) {
        data = x[blockIdx.x];
        ready.store(1, cuda::memory_order_release);
    } else if (threadIdx.x == 32) {
        while (ready.load(cuda::memory_order_acquire) == 0) {
        }
        y[blockIdx.x] = 2 * data;
    }
    __syncthreads();
    if (threadIdx.x == 0) y[64 + blockIdx.x] = float(count.exchange(0));
}
void run(torch::Tensor x, torch::Tensor y) {
    auto counts = torch::zeros({4}, x.options().dtype(torch::kInt));
    kernel<<<4, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), counts.data_ptr<int>());
}
