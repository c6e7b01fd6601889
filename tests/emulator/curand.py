"""cuRAND's device functions in kernels: each thread draws as `DRAW` says."""

from torch.utils.cpp_extension import load_inline

# Also compiled for the host by the test, without the emulator. Each stream fills 32 words and 24 numbers.
DRAW = r"""
template <class State>
__device__ inline void draw(State state, unsigned* bits, double* numbers) {
    for (int i = 0; i < 8; i++) bits[i] = curand(&state);
    skipahead(1000003ull, &state);
    for (int i = 8; i < 16; i++) bits[i] = curand(&state);
    skipahead_sequence(3ull, &state);
    for (int i = 16; i < 32; i++) bits[i] = curand(&state);
    for (int i = 0; i < 4; i++) numbers[i] = curand_uniform(&state);
    for (int i = 4; i < 8; i++) numbers[i] = curand_uniform_double(&state);
    for (int i = 8; i < 12; i++) numbers[i] = curand_normal(&state);
    for (int i = 12; i < 16; i += 2) {
        const float2 two = curand_normal2(&state);
        numbers[i] = two.x;
        numbers[i + 1] = two.y;
    }
    for (int i = 16; i < 20; i++) numbers[i] = curand_log_normal(&state, 0.5f, 0.25f);
    for (int i = 20; i < 24; i++) numbers[i] = curand_poisson(&state, 3.5);
}
__device__ inline void draw_fours(curandStatePhilox4_32_10_t state, unsigned* bits, double* numbers) {
    for (int i = 0; i < 32; i += 4) {
        const uint4 four = curand4(&state);
        bits[i] = four.x, bits[i + 1] = four.y, bits[i + 2] = four.z, bits[i + 3] = four.w;
    }
    for (int i = 0; i < 24; i += 4) {
        const float4 four = i % 8 ? curand_normal4(&state) : curand_uniform4(&state);
        numbers[i] = four.x, numbers[i + 1] = four.y, numbers[i + 2] = four.z, numbers[i + 3] = four.w;
    }
}
// Of stream i: Philox one by one, Philox in fours, XORWOW.
__device__ inline void stream(int i, unsigned* bits, double* numbers) {
    const unsigned long long turn = i / 3, seed = 0x123456789abcdefull * turn, sequence = turn * 5, offset = turn * 7;
    bits += 32 * i;
    numbers += 24 * i;
    if (i % 3 == 2) {
        curandStateXORWOW_t state;
        curand_init(seed, sequence, offset, &state);
        return draw(state, bits, numbers);
    }
    curandStatePhilox4_32_10_t state;
    curand_init(seed, sequence, offset, &state);
    i % 3 ? draw_fours(state, bits, numbers) : draw(state, bits, numbers);
}
"""
STREAMS = 12

CUDA = (
    "#include <curand_kernel.h>\n"
    + DRAW
    + r"""
__global__ void kernel(unsigned* bits, double* numbers) { stream(threadIdx.x, bits, numbers); }
void fill(torch::Tensor bits, torch::Tensor numbers) {
    auto* words = reinterpret_cast<unsigned*>(bits.data_ptr<int>());
    kernel<<<1, unsigned(bits.size(0))>>>(words, numbers.data_ptr<double>());
}

// The counter and key of a known answer, whose counter three skips reach.
__global__ void known(unsigned long long key, unsigned long long high, unsigned long long low, unsigned* bits) {
    curandStatePhilox4_32_10_t state;
    curand_init(key, high, 0, &state);
    for (int i = 0; i < 4; i++) skipahead(low / 4 * 4, &state);
    skipahead(low % 4 * 4, &state);
    const uint4 four = curand4(&state);
    bits[0] = four.x, bits[1] = four.y, bits[2] = four.z, bits[3] = four.w;
}
void answer(int64_t key, int64_t high, int64_t low, torch::Tensor bits) {
    known<<<1, 1>>>(key, high, low, reinterpret_cast<unsigned*>(bits.data_ptr<int>()));
}

// States in global memory, as programs keep them between launches.
__global__ void begin(curandState* states) { curand_init(1234, threadIdx.x, 0, states + threadIdx.x); }
__global__ void next(curandState* states, float* y) {
    curandState own = states[threadIdx.x];
    y[threadIdx.x] = curand_uniform(&own);
    states[threadIdx.x] = own;
}
void twice(torch::Tensor y) {
    auto memory = torch::empty({int64_t(64 * sizeof(curandState))}, torch::dtype(torch::kByte).device(torch::kCUDA));
    auto* states = reinterpret_cast<curandState*>(memory.data_ptr<uint8_t>());
    begin<<<1, 64>>>(states);
    next<<<1, 64>>>(states, y.data_ptr<float>());
    next<<<1, 64>>>(states, y.data_ptr<float>() + 64);
}
"""
)
DECLARATIONS = """
void fill(torch::Tensor bits, torch::Tensor numbers);
void answer(int64_t key, int64_t high, int64_t low, torch::Tensor bits);
void twice(torch::Tensor y);
"""


def run(torch):
    """All streams, Philox's known answers, and two uniform numbers of 64 threads."""
    extension = load_inline("curand", DECLARATIONS, CUDA, ["fill", "answer", "twice"])
    bits = torch.zeros(STREAMS, 32, dtype=torch.int32, device="cuda")
    numbers = torch.zeros(STREAMS, 24, dtype=torch.float64, device="cuda")
    extension.fill(bits, numbers)
    answers = torch.zeros(2, 4, dtype=torch.int32, device="cuda")
    extension.answer(0, 0, 0, answers[0])
    extension.answer(0x299F31D0A4093822, 0x0370734413198A2E, 0x85A308D3243F6A88 - (1 << 64), answers[1])
    y = torch.zeros(128, device="cuda")
    extension.twice(y)
    return {
        "bits": bits.cpu().tolist(),
        "numbers": numbers.cpu().tolist(),
        "answers": [[word & 0xFFFFFFFF for word in row] for row in answers.cpu().tolist()],
        "uniform": y.cpu().tolist(),
    }
