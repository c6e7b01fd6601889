// torch's C++ interface to CUDA streams, events, guards and error checks, for one device.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>
#include <cuda_runtime.h>

#include <optional>
#include <utility>

#include "current_stream.h"

extern "C" const char* emu_explain_error();

namespace c10::cuda {
// The id of a stream is its handle; the default stream has 0 and null.
class CUDAStream {
public:
    enum Unchecked { UNCHECKED };
    CUDAStream() = default;
    explicit CUDAStream(cudaStream_t handle) : handle_(handle) {}
    explicit CUDAStream(c10::Stream stream) : handle_(reinterpret_cast<cudaStream_t>(stream.id())) {}
    CUDAStream(Unchecked, c10::Stream stream) : CUDAStream(stream) {}
    operator cudaStream_t() const { return handle_; }
    operator c10::Stream() const { return unwrap(); }
    cudaStream_t stream() const { return handle_; }
    c10::Stream unwrap() const { return c10::Stream(c10::Stream::UNSAFE, device(), id()); }
    c10::StreamId id() const { return reinterpret_cast<c10::StreamId>(handle_); }
    c10::DeviceIndex device_index() const { return 0; }
    c10::Device device() const { return {c10::DeviceType::CUDA, 0}; }
    int priority() const { return 0; }
    bool query() const { return cudaStreamQuery(handle_) == cudaSuccess; }
    void synchronize() const { (void)cudaStreamSynchronize(handle_); }
    bool operator==(const CUDAStream& other) const { return handle_ == other.handle_; }

private:
    cudaStream_t handle_ = nullptr;
};
inline CUDAStream as_stream(void* handle) { return CUDAStream(static_cast<cudaStream_t>(handle)); }
inline CUDAStream getCurrentCUDAStream(c10::DeviceIndex = -1) { return as_stream(emu_current_stream()); }
inline CUDAStream getDefaultCUDAStream(c10::DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromPool(bool = false, c10::DeviceIndex = -1) { return as_stream(emu_pool_stream()); }
inline CUDAStream getStreamFromPool(int, c10::DeviceIndex = -1) { return as_stream(emu_pool_stream()); }
inline CUDAStream getStreamFromExternal(cudaStream_t stream, c10::DeviceIndex) { return CUDAStream(stream); }
inline void setCurrentCUDAStream(CUDAStream stream) { emu_set_current_stream(stream.stream()); }

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
class CUDAStreamGuard {
public:
    explicit CUDAStreamGuard(CUDAStream stream) { setCurrentCUDAStream(stream); }
    explicit CUDAStreamGuard(c10::Stream stream) : CUDAStreamGuard(CUDAStream(stream)) {}
    CUDAStreamGuard(const CUDAStreamGuard&) = delete;
    ~CUDAStreamGuard() { setCurrentCUDAStream(original_); }
    void reset_stream(CUDAStream stream) { setCurrentCUDAStream(stream); }
    CUDAStream original_stream() const { return original_; }
    CUDAStream current_stream() const { return getCurrentCUDAStream(); }

private:
    const CUDAStream original_ = getCurrentCUDAStream();
};
class OptionalCUDAStreamGuard {
public:
    OptionalCUDAStreamGuard() = default;
    explicit OptionalCUDAStreamGuard(CUDAStream stream) { guard_.emplace(stream); }
    explicit OptionalCUDAStreamGuard(std::optional<CUDAStream> stream) {
        if (stream) guard_.emplace(*stream);
    }
    void reset_stream(CUDAStream stream) { guard_ ? guard_->reset_stream(stream) : void(guard_.emplace(stream)); }
    void reset() { guard_.reset(); }

private:
    std::optional<CUDAStreamGuard> guard_;
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
class CUDAEvent {
public:
    explicit CUDAEvent(unsigned = 0) {}
    CUDAEvent(const CUDAEvent&) = delete;
    CUDAEvent(CUDAEvent&& other) { *this = std::move(other); }
    CUDAEvent& operator=(CUDAEvent&& other) {
        std::swap(event_, other.event_);
        return *this;
    }
    ~CUDAEvent() {
        if (event_) (void)cudaEventDestroy(event_);
    }
    operator cudaEvent_t() const { return event_; }
    cudaEvent_t event() const { return event_; }
    bool isCreated() const { return event_; }
    void record() { record(getCurrentCUDAStream()); }
    void record(const CUDAStream& stream) {
        if (!event_) (void)cudaEventCreate(&event_);
        (void)cudaEventRecord(event_, stream);
    }
    void recordOnce(const CUDAStream& stream) {
        if (!event_) record(stream);
    }
    void block(const CUDAStream& stream) {
        if (event_) (void)cudaStreamWaitEvent(stream, event_, 0);
    }
    bool query() const { return !event_ || cudaEventQuery(event_) == cudaSuccess; }
    void synchronize() const {
        if (event_) (void)cudaEventSynchronize(event_);
    }
    float elapsed_time(const CUDAEvent& end) const {
        TORCH_CHECK(event_ && end.event_, "Both events must be recorded before calculating elapsed time.");
        float ms = 0;
        (void)cudaEventElapsedTime(&ms, event_, end.event_);
        return ms;
    }

private:
    cudaEvent_t event_ = nullptr;
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
