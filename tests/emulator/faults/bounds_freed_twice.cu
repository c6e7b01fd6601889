// Memory from malloc is given back twice.
// Expected: out_of_bounds
__global__ void kernel(const float* x, float* y) {
    float* own = static_cast<float*>(malloc(4 * sizeof(float)));
    own[0] = x[0];
    y[0] = own[0];
    free(own);
    free(own);  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 1>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
