// fence.acq_rel.cta stands before a flag for another block.
// Expected: data_race
__global__ void kernel(const float* x, float* y, int* flags) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        y[0] = x[5];  // HERE
        asm volatile("fence.acq_rel.cta;" ::: "memory");
        atomicExch(flags, 1);
    } else {
        while (atomicAdd(flags, 0) == 0) {
        }
        y[1] = y[0];  // HERE
    }
}
void run(torch::Tensor x, torch::Tensor y) {
    auto ints = torch::zeros({64}, x.options().dtype(torch::kInt));
    auto* flags = ints.data_ptr<int>();
    kernel<<<2, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), flags);
}
