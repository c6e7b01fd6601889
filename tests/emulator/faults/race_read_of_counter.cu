// A sum that all threads add to is read by one of them while others still add. That another word is compared and
// swapped does not make this a guess.
// Expected: data_race
__global__ void kernel(const float* x, float* y, int* done) {
    atomicAdd(y, x[threadIdx.x]);  // HERE
    if (atomicCAS(done, 0, 1) == 0) y[1] = y[0];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) {
    auto done = torch::zeros({1}, x.options().dtype(torch::kInt));
    kernel<<<4, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), done.data_ptr<int>());
}
