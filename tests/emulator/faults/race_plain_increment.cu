// A counter is incremented without an atomic.
// Expected: data_race
__global__ void kernel(float* y) {
    y[0] += 1.f;  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(y.data_ptr<float>()); }
