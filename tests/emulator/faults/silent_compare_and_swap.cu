// Loops around atomicCAS, as the programming guide has them: what they begin with is a plain read, a guess to be tested.
// Expected: silent
__device__ void add(double* address, double value) {
    unsigned long long* word = reinterpret_cast<unsigned long long*>(address);
    unsigned long long old = *word, assumed;
    do {
        assumed = old;
        old = atomicCAS(word, assumed, __double_as_longlong(value + __longlong_as_double(assumed)));
    } while (assumed != old);
}
__device__ void raise(float* address, float value) {
    int* word = reinterpret_cast<int*>(address);
    int old = *word;
    while (__int_as_float(old) < value) {
        const int seen = atomicCAS(word, old, __float_as_int(value));
        if (seen == old) break;
        old = seen;
    }
}
__global__ void kernel(const float* x, double* sums, float* y) {
    __shared__ float highest;
    if (threadIdx.x == 0) highest = 0;
    __syncthreads();
    raise(&highest, x[threadIdx.x]);
    if (blockIdx.x % 2) add(sums, x[threadIdx.x]);
    else atomicAdd(sums, double(x[threadIdx.x]));
    __syncthreads();
    if (threadIdx.x == 0) raise(y, highest);
}
void run(torch::Tensor x, torch::Tensor y) {
    auto sums = torch::zeros({1}, x.options().dtype(torch::kDouble));
    kernel<<<4, 64>>>(x.data_ptr<float>(), sums.data_ptr<double>(), y.data_ptr<float>());
}
