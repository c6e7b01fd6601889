// A scan whose first warp looks at 32 tiles before its own at a time; each word says a tile's sum, or that of all up to it.
// Expected: silent
constexpr unsigned kSum = 1, kPrefix = 2;
__device__ unsigned long long pack(unsigned state, int value) { return (unsigned long long)state << 32 | unsigned(value); }
__global__ void kernel(const float* x, float* y, volatile unsigned long long* words, int* next) {
    __shared__ int shared_tile, before;
    if (threadIdx.x == 0) shared_tile = atomicAdd(next, 1);
    __syncthreads();
    const int tile = shared_tile;
    if (threadIdx.x < 32) {
        const int own = int(x[tile]), lane = threadIdx.x;
        if (lane == 0) words[tile] = pack(tile ? kSum : kPrefix, own);
        int sum = 0;
        for (int last = tile - 1; last >= 0; last -= 32) {
            unsigned long long word = pack(kPrefix, 0);
            if (last - lane >= 0) {
                do word = words[last - lane];
                while (!(word >> 32));
            }
            const unsigned found = __ballot_sync(0xffffffffu, word >> 32 == kPrefix);
            const int nearest = found ? __ffs(found) - 1 : 31;
            int part = lane <= nearest ? int(unsigned(word)) : 0;
            for (int by = 16; by; by /= 2) part += __shfl_xor_sync(0xffffffffu, part, by);
            sum += part;
            if (found) break;
        }
        if (lane == 0 && tile) words[tile] = pack(kPrefix, sum + own);
        if (lane == 0) before = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) y[tile] = before + x[tile];
}
void run(torch::Tensor x, torch::Tensor y) {
    auto words = torch::zeros({100}, x.options().dtype(torch::kLong));
    auto next = torch::zeros({1}, x.options().dtype(torch::kInt));
    auto* first = reinterpret_cast<unsigned long long*>(words.data_ptr<int64_t>());
    kernel<<<100, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), first, next.data_ptr<int>());
}
