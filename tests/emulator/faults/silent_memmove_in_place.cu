// memmove within a thread's own part.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    float* own = y + 16 * threadIdx.x;
    memcpy(own, x + 16 * threadIdx.x, 64);
    memmove(own + 1, own, 60);
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
