"""LayerNorm on the CPU: vectors of 16 floats, threads over rows and chunks, and stores past the cache.

The idea: a row is cut into chunks of 2,048 floats. A thread reads a chunk from memory once, into the L1
cache, and takes its statistics there in two passes; after that the row, 1 MB in the headline's shape
scaled down, is still in L2 when the output is computed. Output lines go around the cache where the tensor
is larger than it: an ordinary store first reads the line that it is about to overwrite. With fewer rows
than threads the chunks of a row are spread over threads instead.

Numerics: per chunk the mean and the sum of squared deviations in two passes, the second correcting the
rounding of the first; chunks are merged in double with the term for the difference of their means.

Bytes moved: x once, y once (no read for ownership), 8 bytes per element, and weight and bias once per row
from L3. On (16, 64, 64, 64): 33.6 MB from and to memory.

Dtypes: 16-bit values become fp32 as they are loaded, 16 at a time, and are rounded once as they are stored. fp64 goes
one value at a time.

Flags: -O3 -march=native builds for the machine at hand (AVX-512, AVX2, NEON); vector types of the compiler
(gcc, clang) are used rather than intrinsics, so that the same source serves each. -fopenmp because
at::parallel_for is a template over OpenMP: without the flag it compiles, and runs on one thread.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

ALSO_FOR = ["layernorm_dtypes"]  # one kernel for all dtypes

CPP = r"""
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <torch/extension.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>
#if defined(__AVX__)
#include <immintrin.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif

constexpr int kLanes = 16;  // one 64-byte cache line
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));
constexpr int kSums = 4;  // independent ones, to hide an addition's latency
constexpr int64_t kStep = kLanes * kSums, kChunk = 2048;  // 8 KB, well within an L1 cache
constexpr int64_t kStreamFrom = int64_t(1) << 22;         // floats: 16 MB, more than an L2 cache
constexpr uintptr_t kHugePage = 2 << 20;

template <typename V>
inline V load_as(const void* p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

inline Lanes load(const float* p) { return load_as<Lanes>(p); }

inline void store(float* p, Lanes v) { std::memcpy(p, &v, sizeof v); }

// bfloat16 is the upper half of a float.
typedef uint32_t Words __attribute__((vector_size(kLanes * sizeof(uint32_t))));
typedef uint16_t Shorts __attribute__((vector_size(kLanes * sizeof(uint16_t))));

inline Words widen(Shorts v) {
#if defined(__AVX512F__)  // gcc 12 makes two halves of it, and puts them together again
    return (Words)_mm512_cvtepu16_epi32((__m256i)v);
#else
    return __builtin_convertvector(v, Words);
#endif
}

inline Lanes load(const c10::BFloat16* p) { return (Lanes)(widen(load_as<Shorts>(p)) << 16); }

inline void store(c10::BFloat16* p, Lanes v) {
    const Words bits = (Words)v;
    const Words nearest_even = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    const Words is_nan = (Words)(v != v);
    const Shorts rounded = __builtin_convertvector((nearest_even & ~is_nan) | (0x7FC0 & is_nan), Shorts);
    std::memcpy(p, &rounded, sizeof rounded);
}

// gcc 12 converts a vector of _Float16 one by one.
#if defined(__AVX512F__)
inline Lanes load(const c10::Half* p) { return (Lanes)_mm512_cvtph_ps(load_as<__m256i>(p)); }

inline void store(c10::Half* p, Lanes v) {
    const __m256i rounded = _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    std::memcpy(p, &rounded, sizeof rounded);
}
#elif defined(__F16C__)
inline Lanes load(const c10::Half* p) {
    const __m256 halves[2] = {_mm256_cvtph_ps(load_as<__m128i>(p)), _mm256_cvtph_ps(load_as<__m128i>(p + 8))};
    return load_as<Lanes>(halves);
}

inline void store(c10::Half* p, Lanes v) {
    __m256 halves[2];
    std::memcpy(halves, &v, sizeof v);
    const __m128i rounded[2] = {_mm256_cvtps_ph(halves[0], _MM_FROUND_TO_NEAREST_INT),
                                _mm256_cvtps_ph(halves[1], _MM_FROUND_TO_NEAREST_INT)};
    std::memcpy(p, rounded, sizeof rounded);
}
#else
inline Lanes load(const c10::Half* p) {
    Lanes v;
    for (int j = 0; j < kLanes; j++) v[j] = p[j];
    return v;
}

inline void store(c10::Half* p, Lanes v) {
    for (int j = 0; j < kLanes; j++) p[j] = v[j];
}
#endif

// Writes a line without reading it first; `fence` orders such writes before what follows.
inline void stream(float* p, Lanes v) {
#if defined(__AVX512F__)
    _mm512_stream_ps(p, (__m512)v);
#elif defined(__AVX__)
    __m256 halves[2];
    std::memcpy(halves, &v, sizeof v);
    _mm256_stream_ps(p, halves[0]);
    _mm256_stream_ps(p + 8, halves[1]);
#else
    store(p, v);
#endif
}

inline void fence() {
#if defined(__AVX__)
    _mm_sfence();
#endif
}

// A fresh 16 MB tensor costs 4,096 page faults, more time than the work itself. Huge pages make it 8.
inline void want_huge_pages(void* p, int64_t bytes) {
#if defined(__linux__)
    const uintptr_t first = (reinterpret_cast<uintptr_t>(p) + kHugePage - 1) / kHugePage * kHugePage;
    const uintptr_t last = (reinterpret_cast<uintptr_t>(p) + bytes) / kHugePage * kHugePage;
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);  // only advice
#endif
}

inline float sum_lanes(const Lanes (&sums)[kSums]) {
    Lanes v = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int j = 0; j < half; j++) v[j] += v[j + half];
    }
    return v[0];
}

struct Statistics {
    double mean, squares;  // squares: the sum of squared deviations from that mean
};

// Gives the chunk to `lanes(vector, which sum)` and what is left over to `scalar(element)`.
template <typename T, typename OnLanes, typename OnScalar>
inline void for_each(const T* x, int64_t count, OnLanes lanes, OnScalar scalar) {
    int64_t i = 0;
    for (; i + kStep <= count; i += kStep) {
        for (int s = 0; s < kSums; s++) lanes(load(x + i + s * kLanes), s);
    }
    for (; i + kLanes <= count; i += kLanes) lanes(load(x + i), 0);
    for (; i < count; i++) scalar(x[i]);
}

template <typename T>
inline Statistics chunk_statistics(const T* x, int64_t count, double inverse_count) {
    Lanes sums[kSums] = {};
    float sum = 0.0f;
    for_each(
        x, count, [&](Lanes v, int s) { sums[s] += v; }, [&](float v) { sum += v; });
    if (count >= kLanes) sum += sum_lanes(sums);
    const float mean = sum * inverse_count;

    Lanes deviations[kSums] = {}, squares[kSums] = {};
    float deviation = 0.0f, square = 0.0f;
    for_each(
        x, count,
        [&](Lanes v, int s) {
            const Lanes d = v - mean;
            deviations[s] += d;
            squares[s] += d * d;
        },
        [&](float v) {
            const float d = v - mean;
            deviation += d;
            square += d * d;
        });
    if (count >= kLanes) {
        deviation += sum_lanes(deviations);
        square += sum_lanes(squares);
    }
    const double correction = deviation * inverse_count;  // what the rounded mean missed
    return {mean + correction, square - deviation * correction};
}

Statistics merge(const Statistics* chunks, int64_t width) {
    const auto count = [&](int64_t c) -> double { return std::min(kChunk, width - c * kChunk); };
    const int64_t number = (width + kChunk - 1) / kChunk;
    if (number == 1) return chunks[0];
    Statistics row = {0.0, 0.0};
    for (int64_t c = 0; c < number; c++) row.mean += count(c) / width * chunks[c].mean;
    for (int64_t c = 0; c < number; c++) {
        const double between = chunks[c].mean - row.mean;
        row.squares += chunks[c].squares + count(c) * between * between;
    }
    return row;
}

// One chunk of the output. Around the cache (`stream`) y has to start at a cache line, and needs a fence.
template <bool kStream, typename T, typename W>
void normalise(const T* x, const W* weight, const W* bias, T* y, int64_t count, double mean, float rstd) {
    const float high = mean, low = mean - high;  // together the double
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        const Lanes v = ((load(x + i) - high) - low) * rstd * load(weight + i) + load(bias + i);
        if constexpr (kStream) {
            stream(y + i, v);
        } else {
            store(y + i, v);
        }
    }
    for (; i < count; i++) y[i] = ((float(x[i]) - high) - low) * rstd * float(weight[i]) + float(bias[i]);
}

// T is the type of x and y, W that of weight and bias.
template <typename T, typename W>
struct Problem {
    const T* x;
    const W *weight, *bias;
    T* y;
    int64_t rows, width, chunks;
    double inverse_width, eps;
    bool stream;

    Statistics statistics(int64_t row, int64_t c) const {
        const int64_t count = std::min(kChunk, width - c * kChunk);
        const double inverse_count = count == width ? inverse_width : 1.0 / count;
        return chunk_statistics(x + row * width + c * kChunk, count, inverse_count);
    }

    void output(int64_t row, int64_t c, const Statistics& of_row) const {
        const int64_t column = c * kChunk, at = row * width + column;
        const int64_t count = std::min(kChunk, width - column);
        const float rstd = 1.0f / std::sqrt(static_cast<float>(of_row.squares * inverse_width + eps));
        constexpr bool kMayStream = std::is_same_v<T, float>;
        (kMayStream && stream ? normalise<kMayStream, T, W> : normalise<false, T, W>)(
            x + at, weight + column, bias + column, y + at, count, of_row.mean, rstd);
    }
};

// A thread does whole rows, so that its second look at a row finds it in its L2 cache.
template <typename T, typename W>
void by_rows(const Problem<T, W>& p) {
    const int64_t grain = std::max<int64_t>(1, at::internal::GRAIN_SIZE / p.width);
    at::parallel_for(0, p.rows, grain, [&](int64_t first, int64_t last) {
        std::vector<Statistics> chunks(p.chunks);
        for (int64_t row = first; row < last; row++) {
            for (int64_t c = 0; c < p.chunks; c++) chunks[c] = p.statistics(row, c);
            const Statistics of_row = merge(chunks.data(), p.width);
            // backwards: the end of the row is what the caches hold
            for (int64_t c = p.chunks; c-- > 0;) p.output(row, c, of_row);
        }
        fence();
    });
}

// Fewer rows than threads: the chunks of a row are spread over the threads, with a barrier in between.
template <typename T, typename W>
void by_chunks(const Problem<T, W>& p) {
    const int64_t grain = at::internal::GRAIN_SIZE / kChunk;
    std::vector<Statistics> chunks(p.rows * p.chunks), of_row(p.rows);
    at::parallel_for(0, p.rows * p.chunks, grain, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; i++) chunks[i] = p.statistics(i / p.chunks, i % p.chunks);
    });
    for (int64_t row = 0; row < p.rows; row++) of_row[row] = merge(&chunks[row * p.chunks], p.width);
    at::parallel_for(0, p.rows * p.chunks, grain, [&](int64_t first, int64_t last) {
        for (int64_t i = last; i-- > first;) p.output(i / p.chunks, i % p.chunks, of_row[i / p.chunks]);
        fence();
    });
}

template <typename T, typename W>
void in_vectors(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, torch::Tensor& y,
                double eps) {
    Problem<T, W> p = {x.data_ptr<T>(), weight.data_ptr<W>(), bias.data_ptr<W>(), y.data_ptr<T>()};
    want_huge_pages(p.y, y.nbytes());
    p.width = weight.numel();
    p.rows = x.numel() / p.width;
    p.chunks = (p.width + kChunk - 1) / kChunk;
    p.inverse_width = 1.0 / p.width;
    p.eps = eps;
    p.stream = x.numel() >= kStreamFrom && p.width % kLanes == 0 &&
               reinterpret_cast<uintptr_t>(p.y) % sizeof(Lanes) == 0;
    p.rows < at::get_num_threads() ? by_chunks(p) : by_rows(p);
}

void in_double(const double* x, const double* weight, const double* bias, double* y, int64_t rows, int64_t width,
               double eps) {
    const int64_t grain = std::max<int64_t>(1, at::internal::GRAIN_SIZE / width);
    at::parallel_for(0, rows, grain, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; row++) {
            const double* in = x + row * width;
            double sum = 0.0, deviations = 0.0, squares = 0.0;
            for (int64_t i = 0; i < width; i++) sum += in[i] - in[0];
            const double mean = in[0] + sum / width;
            for (int64_t i = 0; i < width; i++) {
                const double d = in[i] - mean;
                deviations += d;
                squares += d * d;
            }
            const double correction = deviations / width;  // what the rounded mean missed
            const double rstd = 1.0 / std::sqrt(std::max(squares / width - correction * correction, 0.0) + eps);
            for (int64_t i = 0; i < width; i++) {
                y[row * width + i] = (in[i] - mean - correction) * rstd * weight[i] + bias[i];
            }
        }
    });
}

void check_parameter(const char* name, const torch::Tensor& parameter, const torch::Tensor& x) {
    TORCH_CHECK(parameter.is_cpu(), "layer_norm: ", name, " must be a CPU tensor, got one on ",
                parameter.device());
    TORCH_CHECK(parameter.scalar_type() == x.scalar_type() ||
                    (parameter.scalar_type() == torch::kFloat && x.element_size() == 2),
                "layer_norm: ", name, " must be ", x.scalar_type(), " like x, or float32 beside 16-bit values, got ",
                parameter.scalar_type());
}

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
    check_parameter("x", x, x);
    check_parameter("weight", weight, x);
    check_parameter("bias", bias, x);
    TORCH_CHECK(bias.scalar_type() == weight.scalar_type(), "layer_norm: bias is ", bias.scalar_type(),
                " but weight is ", weight.scalar_type());
    TORCH_CHECK(weight.dim() >= 1 && x.dim() >= weight.dim() &&
                    x.sizes().slice(x.dim() - weight.dim()) == weight.sizes(),
                "layer_norm: the last dimensions of x ", x.sizes(), " must be normalized_shape ",
                weight.sizes());
    TORCH_CHECK(bias.sizes() == weight.sizes(), "layer_norm: bias has shape ", bias.sizes(),
                " but weight has shape ", weight.sizes());
    x = x.contiguous();
    weight = weight.contiguous();
    bias = bias.contiguous();
    auto y = torch::empty(x.sizes(), x.options());
    if (y.numel() == 0) return y;
    if (x.scalar_type() == torch::kDouble) {
        in_double(x.data_ptr<double>(), weight.data_ptr<double>(), bias.data_ptr<double>(), y.data_ptr<double>(),
                  x.numel() / weight.numel(), weight.numel(), eps);
        return y;
    }
    AT_DISPATCH_SWITCH(x.scalar_type(), "layer_norm",
        AT_DISPATCH_CASE(torch::kFloat, [&] { in_vectors<float, float>(x, weight, bias, y, eps); })
        AT_DISPATCH_CASE_REDUCED_FLOATING_TYPES([&] {
            weight.scalar_type() == torch::kFloat ? in_vectors<scalar_t, float>(x, weight, bias, y, eps)
                                                  : in_vectors<scalar_t, scalar_t>(x, weight, bias, y, eps);
        }));
    return y;
}
"""

extension = load_inline(
    name="layernorm_cpu_vectorised",
    cpp_sources=CPP,
    functions=["layer_norm"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return extension.layer_norm(x, self.weight, self.bias, self.eps)
