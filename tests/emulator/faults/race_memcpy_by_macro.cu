// A macro means memcpy, and all threads copy to one place.
// Expected: data_race
#define COPY memcpy
__global__ void kernel(const float* x, float* y) {
    COPY(y, x + threadIdx.x, 5 * sizeof(float));  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
