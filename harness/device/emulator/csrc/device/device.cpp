// The device named cuda: guard, allocator and hooks, registered with a torch that was built without CUDA.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "../runtime/memory.h"
#include "alias.h"

namespace emu_device {
using namespace c10;

void release(void* data) { emu_release(data); }

namespace {
const Device kDevice(DeviceType::CUDA, 0);
const Stream kStream(Stream::DEFAULT, kDevice);

struct Guard final : impl::DeviceGuardImplInterface {
    DeviceType type() const override { return DeviceType::CUDA; }
    Device exchangeDevice(Device device) const override {
        expect_device(device);
        return kDevice;
    }
    Device getDevice() const override { return kDevice; }
    void setDevice(Device device) const override { expect_device(device); }
    void uncheckedSetDevice(Device) const noexcept override {}
    Stream getStream(Device) const override { return kStream; }
    Stream getDefaultStream(Device) const override { return kStream; }
    Stream getStreamFromGlobalPool(Device, bool) const override { return kStream; }
    Stream getNewStream(Device, int) const override { return kStream; }
    Stream exchangeStream(Stream) const override { return kStream; }
    DeviceIndex deviceCount() const noexcept override { return 1; }
    // Work is done when the call that asks for it returns: events have always happened.
    void destroyEvent(void*, const DeviceIndex) const noexcept override {}
    void record(void** event, const Stream&, const DeviceIndex, const EventFlag) const override {
        *event = const_cast<Guard*>(this);
    }
    void block(void*, const Stream&) const override {}
    bool queryEvent(void*) const override { return true; }
    bool queryStream(const Stream&) const override { return true; }
    void synchronizeStream(const Stream&) const override {}
    void synchronizeEvent(void*) const override {}
    void synchronizeDevice(const DeviceIndex) const override {}
    void recordDataPtrOnStream(const DataPtr&, const Stream&) const override {}
    double elapsedTime(void*, void*, const DeviceIndex) const override { return 0.0; }
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
    void deviceSynchronize(DeviceIndex) const override {}
    const at::Generator& getDefaultGenerator(DeviceIndex) const override { return at::detail::getDefaultCPUGenerator(); }
    at::Generator getNewGenerator(DeviceIndex) const override { return at::detail::createCPUGenerator(); }
};
}  // namespace

Allocator* cuda_allocator() { return &allocator; }

DataPtr cuda_memory(size_t bytes) {
    if (!bytes) return {nullptr, kDevice};
    void* data = emu_allocate(bytes);
    TORCH_CHECK(data, "CUDA out of memory: the emulator cannot map ", bytes, " bytes.");
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
