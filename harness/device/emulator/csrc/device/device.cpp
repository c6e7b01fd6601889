// The device named cuda: guard, allocator and hooks, registered with a torch that was built without CUDA.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <cuda_runtime.h>

#include "../../include/emu/current_stream.h"
#include "../runtime/capture.h"
#include "../runtime/memory.h"
#include "alias.h"

namespace emu_device {
using namespace c10;

void release(void* data) { emu_let_go(data); }

namespace {
const Device kDevice(DeviceType::CUDA, 0);

// The id of a stream is its handle; the default stream has 0 and null.
Stream as_torch(void* handle) { return Stream(Stream::UNSAFE, kDevice, reinterpret_cast<StreamId>(handle)); }
cudaStream_t as_cuda(const Stream& stream) { return reinterpret_cast<cudaStream_t>(stream.id()); }
cudaEvent_t as_cuda(void* event) { return static_cast<cudaEvent_t>(event); }
void check(cudaError_t error) { TORCH_CHECK(error == cudaSuccess, "CUDA error: ", cudaGetErrorString(error), "."); }

struct Guard final : impl::DeviceGuardImplInterface {
    DeviceType type() const override { return DeviceType::CUDA; }
    Device exchangeDevice(Device device) const override {
        expect_device(device);
        return kDevice;
    }
    Device getDevice() const override { return kDevice; }
    void setDevice(Device device) const override { expect_device(device); }
    void uncheckedSetDevice(Device) const noexcept override {}
    Stream getStream(Device) const override { return as_torch(emu_current_stream()); }
    Stream getDefaultStream(Device) const override { return as_torch(nullptr); }
    Stream getStreamFromGlobalPool(Device, bool) const override { return as_torch(emu_pool_stream()); }
    Stream getNewStream(Device, int) const override { return as_torch(emu_pool_stream()); }
    Stream exchangeStream(Stream stream) const override {
        const Stream before = as_torch(emu_current_stream());
        emu_set_current_stream(as_cuda(stream));
        return before;
    }
    DeviceIndex deviceCount() const noexcept override { return 1; }
    void destroyEvent(void* event, const DeviceIndex) const noexcept override {
        if (event) (void)cudaEventDestroy(as_cuda(event));
    }
    void record(void** event, const Stream& stream, const DeviceIndex, const EventFlag) const override {
        if (!*event) (void)cudaEventCreate(reinterpret_cast<cudaEvent_t*>(event));
        check(cudaEventRecord(as_cuda(*event), as_cuda(stream)));
    }
    void block(void* event, const Stream& stream) const override {
        if (event) check(cudaStreamWaitEvent(as_cuda(stream), as_cuda(event), 0));
    }
    bool queryEvent(void* event) const override { return !event || cudaEventQuery(as_cuda(event)) == cudaSuccess; }
    bool queryStream(const Stream& stream) const override { return cudaStreamQuery(as_cuda(stream)) == cudaSuccess; }
    void synchronizeStream(const Stream& stream) const override { check(cudaStreamSynchronize(as_cuda(stream))); }
    void synchronizeEvent(void* event) const override {
        if (event) check(cudaEventSynchronize(as_cuda(event)));
    }
    void synchronizeDevice(const DeviceIndex) const override { check(cudaDeviceSynchronize()); }
    void recordDataPtrOnStream(const DataPtr&, const Stream&) const override {}
    double elapsedTime(void* from, void* to, const DeviceIndex) const override {
        float ms = 0;
        (void)cudaEventElapsedTime(&ms, as_cuda(from), as_cuda(to));
        return ms;
    }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

struct CudaAllocator final : Allocator {
    DataPtr allocate(size_t bytes) override { return cuda_memory(bytes); }
    DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override { memcpy(to, from, bytes); }
};
CudaAllocator allocator;
REGISTER_ALLOCATOR(DeviceType::CUDA, &allocator)

struct Hooks final : at::CUDAHooksInterface {
    explicit Hooks(at::CUDAHooksArgs) {}
    void init() const override {}
    bool hasCUDA() const override { return true; }
    bool hasPrimaryContext(DeviceIndex) const override { return true; }
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    DeviceIndex deviceCount() const override { return 1; }
    DeviceIndex current_device() const override { return 0; }
    DeviceIndex getCurrentDevice() const override { return 0; }
    int getNumGPUs() const override { return 1; }
    bool isPinnedPtr(const void*) const override { return false; }
    Allocator* getPinnedMemoryAllocator() const override { return GetAllocator(DeviceType::CPU); }
    Allocator* getCUDADeviceAllocator() const override { return &allocator; }
    void deviceSynchronize(DeviceIndex) const override { check(cudaDeviceSynchronize()); }
    const at::Generator& getDefaultGenerator(DeviceIndex) const override { return at::detail::getDefaultCPUGenerator(); }
    at::Generator getNewGenerator(DeviceIndex) const override { return at::detail::createCPUGenerator(); }
};
}  // namespace

Allocator* cuda_allocator() { return &allocator; }

DataPtr cuda_memory(size_t bytes) {
    if (!bytes) return {nullptr, kDevice};
    void* data = emu_allocate(bytes);
    const uint64_t total = emu_memory_total_bytes(), free = total - emu_memory_live_bytes();
    TORCH_CHECK_WITH(OutOfMemoryError, data, "CUDA out of memory. Tried to allocate ", bytes, " bytes. The emulated card has ",
                     total, " bytes, of which ", free, " are free", bytes <= free ? ", and this machine has not." : ".");
    emu_keep_for_graph(data);
    return {data, data, &release, kDevice};
}

void expect_device(Device device) {
    TORCH_CHECK(device.type() == DeviceType::CUDA && device.index() <= 0,
                "CUDA error: invalid device ordinal; there is one emulated device, cuda:0, not ", device, ".");
}
}  // namespace emu_device

namespace at {
using CUDAHooks = emu_device::Hooks;   // torch looks for this very name
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at
