// The last block adds the partial sums of all others, which they wrote without a __threadfence() before the ticket.
// Expected: data_race
__global__ void kernel(const float* x, float* y, float* parts, unsigned* tickets) {
    __shared__ bool last;
    parts[blockIdx.x * 32 + threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];  // HERE
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(tickets, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    float sum = 0;
    for (unsigned b = 0; b < gridDim.x; b++) sum += parts[b * 32 + threadIdx.x];  // HERE
    y[threadIdx.x] = sum;
}
void run(torch::Tensor x, torch::Tensor y) {
    auto parts = torch::zeros({256}, x.options());
    auto tickets = torch::zeros({1}, x.options().dtype(torch::kInt));
    kernel<<<8, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), parts.data_ptr<float>(),
                      reinterpret_cast<unsigned*>(tickets.data_ptr<int>()));
}
