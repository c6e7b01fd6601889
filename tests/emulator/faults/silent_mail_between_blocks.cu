// Each block sends its sum to all others in a word that says by itself whether it is there, and waits for theirs.
// Expected: silent
constexpr unsigned kNoMail = ~0u;
__device__ void send(float* mail, float sum) { *static_cast<volatile float*>(mail) = sum; }
__device__ float wait_for(const float* mail) {
    const auto* word = reinterpret_cast<const volatile unsigned*>(mail);
    unsigned bits = *word;
    while (bits == kNoMail) {
        __nanosleep(32);
        bits = *word;
    }
    return __uint_as_float(bits);
}
__global__ void kernel(const float* x, float* y, float* mail) {
    if (threadIdx.x == 0) send(mail + blockIdx.x, x[blockIdx.x]);
    float sum = 0;
    for (unsigned from = threadIdx.x; from < gridDim.x; from += blockDim.x) sum += wait_for(mail + from);
    atomicAdd(y + blockIdx.x, sum);
}
void run(torch::Tensor x, torch::Tensor y) {
    auto mail = torch::full({32}, -1, x.options().dtype(torch::kInt));
    auto* words = reinterpret_cast<float*>(mail.data_ptr<int>());
    kernel<<<32, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), words);
}
