// torch's C++ interface to CUDA streams, guards and error checks, for one device without concurrency.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>
#include <cuda_runtime.h>

#include <optional>

extern "C" const char* emu_explain_error();

namespace c10::cuda {
class CUDAStream {
public:
    enum Unchecked { UNCHECKED };
    CUDAStream() = default;
    explicit CUDAStream(c10::Stream) {}
    CUDAStream(Unchecked, c10::Stream) {}
    operator cudaStream_t() const { return nullptr; }
    operator c10::Stream() const { return unwrap(); }
    cudaStream_t stream() const { return nullptr; }
    c10::Stream unwrap() const { return c10::Stream(c10::Stream::DEFAULT, device()); }
    c10::StreamId id() const { return 0; }
    c10::DeviceIndex device_index() const { return 0; }
    c10::Device device() const { return {c10::DeviceType::CUDA, 0}; }
    int priority() const { return 0; }
    bool query() const { return true; }
    void synchronize() const { (void)cudaDeviceSynchronize(); }
    bool operator==(const CUDAStream&) const { return true; }
};
inline CUDAStream getCurrentCUDAStream(c10::DeviceIndex = -1) { return {}; }
inline CUDAStream getDefaultCUDAStream(c10::DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromPool(bool = false, c10::DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromPool(int, c10::DeviceIndex = -1) { return {}; }
inline void setCurrentCUDAStream(CUDAStream) {}

inline void expect_device(c10::Device device) {
    TORCH_CHECK(device.is_cuda(), "Expected a CUDA device, but got ", device, ".");
    TORCH_CHECK(device.index() <= 0, "CUDA error: invalid device ordinal ", device.index(), "; there is one device.");
}
inline void expect_device(c10::DeviceIndex index) { expect_device(c10::Device(c10::DeviceType::CUDA, index)); }

struct CUDAGuard {
    explicit CUDAGuard(c10::Device device) { expect_device(device); }
    explicit CUDAGuard(c10::DeviceIndex index) { expect_device(index); }
    void set_device(c10::Device device) { expect_device(device); }
    void reset_device(c10::Device device) { expect_device(device); }
    void set_index(c10::DeviceIndex index) { expect_device(index); }
    c10::Device current_device() const { return {c10::DeviceType::CUDA, 0}; }
    c10::Device original_device() const { return {c10::DeviceType::CUDA, 0}; }
};
struct OptionalCUDAGuard {
    OptionalCUDAGuard() = default;
    explicit OptionalCUDAGuard(std::optional<c10::Device> device) {
        if (device) expect_device(*device);
    }
    explicit OptionalCUDAGuard(c10::DeviceIndex index) { expect_device(index); }
    void set_device(c10::Device device) { expect_device(device); }
    void set_index(c10::DeviceIndex index) { expect_device(index); }
};
struct CUDAStreamGuard {
    explicit CUDAStreamGuard(CUDAStream) {}
    explicit CUDAStreamGuard(c10::Stream) {}
};
struct OptionalCUDAStreamGuard {
    OptionalCUDAStreamGuard() = default;
    explicit OptionalCUDAStreamGuard(CUDAStream) {}
};
inline c10::DeviceIndex current_device() { return 0; }
inline c10::DeviceIndex device_count() { return 1; }
inline c10::DeviceIndex device_count_ensure_non_zero() { return 1; }
inline void set_device(c10::DeviceIndex index) { expect_device(index); }
inline void device_synchronize() { (void)cudaDeviceSynchronize(); }

inline void check(cudaError_t error) {
    if (error == cudaSuccess) return;
    const char* reason = emu_explain_error();
    TORCH_CHECK(false, "CUDA error: ", cudaGetErrorString(error), " (", cudaGetErrorName(error), "). ", reason);
}
// Peeks before it takes the error: the reason of a refused launch is lost once somebody has looked.
inline void check_last_launch() {
    const char* reason = emu_explain_error();
    const cudaError_t error = cudaGetLastError();
    TORCH_CHECK(error == cudaSuccess, "CUDA error: ", cudaGetErrorString(error), " (", cudaGetErrorName(error), "). ",
                reason);
}
}  // namespace c10::cuda

namespace at::cuda {
using namespace c10::cuda;
inline const cudaDeviceProp* getDeviceProperties(c10::DeviceIndex = 0) {
    static const cudaDeviceProp properties = [] {
        cudaDeviceProp p;
        (void)cudaGetDeviceProperties(&p, 0);
        return p;
    }();
    return &properties;
}
inline const cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(); }
inline int warp_size() { return 32; }
inline bool is_available() { return true; }
inline int64_t getNumGPUs() { return 1; }
template <class T>
inline T ceil_div(T a, T b) { return (a + b - 1) / b; }
struct CUDAEvent {
    CUDAEvent() = default;
    explicit CUDAEvent(unsigned) {}
    void record() {}
    void record(const CUDAStream&) {}
    void recordOnce(const CUDAStream&) {}
    void block(const CUDAStream&) {}
    bool query() const { return true; }
    void synchronize() const {}
};
}  // namespace at::cuda

#define C10_CUDA_CHECK(expression) ::c10::cuda::check(expression)
#define C10_CUDA_CHECK_WARN(expression) ((void)(expression))
#define C10_CUDA_IGNORE_ERROR(expression) ((void)(expression))
#define C10_CUDA_CLEAR_ERROR() ((void)cudaGetLastError())
#define C10_CUDA_KERNEL_LAUNCH_CHECK() ::c10::cuda::check_last_launch()
#define AT_CUDA_CHECK(expression) C10_CUDA_CHECK(expression)
#define TORCH_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_KERNEL_LAUNCH_CHECK()
#define CUDA_KERNEL_LOOP_TYPE(i, n, type)                                                          \
    for (type i = type(blockIdx.x) * type(::emu::block_dim().x) + type(threadIdx.x); i < (n);      \
         i += type(::emu::block_dim().x) * type(::emu::grid_dim().x))
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)
