// A thread shifts its own part by one: the loop is what a compiler turns into one copy of overlapping bytes.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    float* own = y + 16 * threadIdx.x;
    memcpy(own, x + 16 * threadIdx.x, 64);
    for (int i = 15; i > 0; --i) own[i] = own[i - 1];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
