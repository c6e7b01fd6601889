// Two blocks copy a double2 to one place.
// Expected: data_race
__global__ void kernel(const double2* x, double2* y) {
    if (threadIdx.x == 0) y[0] = x[blockIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) {
    kernel<<<2, 32>>>(reinterpret_cast<const double2*>(x.data_ptr<float>()), reinterpret_cast<double2*>(y.data_ptr<float>()));
}
