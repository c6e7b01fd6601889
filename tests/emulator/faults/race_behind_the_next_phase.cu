// A thread waits for the first phase of a barrier and reads what was written before an arrival at the second.
// Expected: data_race
// Order: forward
__device__ unsigned address_of(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
__device__ void arrive(unsigned long long* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(address_of(barrier)) : "memory");
}
__device__ void wait(unsigned long long* barrier, unsigned parity) {
    unsigned over = 0;
    while (!over) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                     : "=r"(over) : "r"(address_of(barrier)), "r"(parity) : "memory");
    }
}
__global__ void kernel(const float* x, float* y) {
    __shared__ unsigned long long barrier;
    __shared__ float s;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" : : "r"(address_of(&barrier)) : "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) arrive(&barrier);
    if (threadIdx.x == 32) {
        arrive(&barrier);
        wait(&barrier, 0);
        s = x[7];  // HERE
        arrive(&barrier);
    }
    if (threadIdx.x == 64) {
        wait(&barrier, 0);
        y[0] = s;  // HERE
    }
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 96>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
