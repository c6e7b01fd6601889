// A scan over tiles that blocks take in turn: sum and state lie in one word, so that no fence is needed. Who comes late
// finds the word set and never waits.
// Expected: silent
__global__ void kernel(const float* x, float* y, volatile unsigned long long* words, int* next) {
    if (threadIdx.x) return;
    const int tile = atomicAdd(next, 1);
    float before = 0;
    if (tile) {
        unsigned long long word;
        do word = words[tile - 1];
        while (!(word >> 32));
        before = __uint_as_float(unsigned(word));
    }
    const float sum = before + x[tile];
    words[tile] = 1ull << 32 | __float_as_uint(sum);
    y[tile] = sum;
}
void run(torch::Tensor x, torch::Tensor y) {
    auto words = torch::zeros({64}, x.options().dtype(torch::kLong));
    auto next = torch::zeros({1}, x.options().dtype(torch::kInt));
    auto* first = reinterpret_cast<unsigned long long*>(words.data_ptr<int64_t>());
    kernel<<<64, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), first, next.data_ptr<int>());
}
