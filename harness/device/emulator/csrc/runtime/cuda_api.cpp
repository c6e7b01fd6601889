// The CUDA runtime API, as far as kernel code calls it: memory, errors and attributes.
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>

#include "capture.h"
#include "cuda_state.h"
#include "state.h"
#include "streams.h"

namespace emu {
namespace {
std::mutex lock;
std::map<const void*, size_t> raised_limits;
thread_local cudaError_t last_error = cudaSuccess;
thread_local bool unseen = false;          // a refused launch that nobody has asked about
thread_local RawFinding unseen_finding;

void seen() { unseen = false; }

}  // namespace

cudaError_t fail_with(cudaError_t error) {
    last_error = error;
    return error;
}

void set_error(cudaError_t error, const RawFinding* finding) {
    last_error = error;
    if (!finding) return;
    unseen = true;
    unseen_finding = *finding;
}

void raise_unseen_error() {
    if (!unseen) return;
    unseen = false;
    last_error = cudaSuccess;
    unseen_finding.message += " Nobody looked at the error.";
    keep(unseen_finding);
    throw std::runtime_error("CUDA emulator: " + sentence(unseen_finding));
}

size_t dynamic_shared_limit(const void* function) {
    std::lock_guard<std::mutex> guard(lock);
    size_t limit = kStaticSharedLimit;
    for (const auto& [key, bytes] : raised_limits) {
        if (!function || key == function) limit = std::max(limit, bytes);
    }
    return limit;
}

unsigned blocks_per_multiprocessor(uint64_t threads, size_t shared_bytes) {
    if (!threads) return 0;
    const uint64_t warps = (threads + 31) / 32;
    const uint64_t by_threads = kThreadsPerMultiprocessor / 32 / warps;
    const uint64_t by_shared = kSharedPerMultiprocessor / (shared_bytes + 1024);
    return unsigned(std::min<uint64_t>({by_threads, by_shared, kBlocksPerMultiprocessor}));
}

uint64_t clock_ticks() { return __builtin_ia32_rdtsc(); }
}  // namespace emu

using namespace emu;

extern "C" {
void emu_settle() {   // findings are about to be read: a launch whose refusal nobody saw becomes one
    try {
        raise_unseen_error();
    } catch (const std::runtime_error&) {
    }
}
// The check macros of torch raise: the refusal is then a finding, whatever Python makes of the exception.
const char* emu_explain_error() {
    static thread_local std::string explanation;
    explanation.clear();
    if (!unseen) return explanation.c_str();
    explanation = unseen_finding.message;
    keep(unseen_finding);
    seen();
    return explanation.c_str();
}

cudaError_t cudaGetLastError() {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    seen();
    return error;
}
cudaError_t cudaPeekAtLastError() {
    seen();
    return last_error;
}

struct ErrorText {
    cudaError_t error;
    const char *name, *text;
};
static const ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorCooperativeLaunchTooLarge, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
    {cudaErrorInvalidClusterSize, "cudaErrorInvalidClusterSize", "invalid cluster size"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorInvalidSymbol, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"},
};
static const ErrorText& find_error(cudaError_t error) {
    static const ErrorText unknown{cudaErrorUnknown, "cudaErrorUnknown", "unknown error"};
    for (const auto& e : kErrors) {
        if (e.error == error) return e;
    }
    return unknown;
}
const char* cudaGetErrorName(cudaError_t error) { return find_error(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return find_error(error).text; }

// ---- devices
cudaError_t cudaSetDevice(int device) { return device ? fail_with(cudaErrorInvalidDevice) : cudaSuccess; }
cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceReset() { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) {
    *version = 13000;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit) {
    *value = 1024;
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
    *total = emu_memory_total_bytes();
    *free_bytes = *total - emu_memory_live_bytes();
    return cudaSuccess;
}

// ---- memory
static cudaError_t allocate(void** pointer, size_t bytes) {
    *pointer = bytes ? emu_allocate(bytes) : nullptr;
    return bytes && !*pointer ? fail_with(cudaErrorMemoryAllocation) : cudaSuccess;
}
cudaError_t cudaMalloc(void** pointer, size_t bytes) {
    if (const cudaError_t error = may_call_unsafe()) return error;
    return allocate(pointer, bytes);
}
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
    if (is_captured(stream)) refuse_unsupported("cudaMallocAsync in a captured stream");
    return allocate(pointer, bytes);
}
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned) { return cudaMalloc(pointer, bytes); }
cudaError_t cudaFree(void* pointer) {
    if (const cudaError_t error = may_call_unsafe()) return error;
    raise_unseen_error();
    emu_wait_for_device();
    return !pointer || emu_release(pointer) ? cudaSuccess : fail_with(cudaErrorInvalidValue);
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
    if (is_captured(stream)) {   // without an exception: destructors call this
        keep_unsupported("cudaFreeAsync in a captured stream");
        return fail_with(cudaErrorNotSupported);
    }
    return !pointer || emu_release(pointer) ? cudaSuccess : fail_with(cudaErrorInvalidValue);
}

static bool inside(const void* pointer, size_t bytes) {   // or no device memory at all
    EmuRegion r;
    const uintptr_t a = reinterpret_cast<uintptr_t>(pointer);
    if (!region_of(a, &r)) return !emu_find_freed(a, &r);
    return a >= r.data && a + bytes <= r.data + r.bytes;
}
static void in_order(cudaStream_t stream, const char* what, const void* address, size_t bytes, bool write) {
    std::string said;
    EmuRegion r;
    if (!region_of(reinterpret_cast<uintptr_t>(address), &r)) return;   // the host's
    if (access_in_stream(stream, what, address, bytes, write, &said)) throw std::runtime_error("CUDA emulator: " + said);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    raise_unseen_error();
    require_stream(stream, "cudaMemcpyAsync");
    if (is_captured(stream)) {
        return capture(stream, [=](cudaStream_t where) { return cudaMemcpyAsync(to, from, bytes, kind, where); });
    }
    if (!inside(to, bytes) || !inside(from, bytes)) return fail_with(cudaErrorInvalidValue);
    in_order(stream, "cudaMemcpyAsync", from, bytes, false);
    in_order(stream, "cudaMemcpyAsync", to, bytes, true);
    memmove(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    const auto error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
    wait_for_stream(nullptr);
    return error;
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    for (size_t row = 0; row < height; row++) {
        const auto error = cudaMemcpyAsync(static_cast<char*>(to) + row * to_pitch,
                                           static_cast<const char*>(from) + row * from_pitch, width, kind, stream);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind) {
    const auto error = cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr);
    wait_for_stream(nullptr);
    return error;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
    require_stream(stream, "cudaMemsetAsync");
    if (is_captured(stream)) {
        return capture(stream, [=](cudaStream_t where) { return cudaMemsetAsync(to, value, bytes, where); });
    }
    if (!inside(to, bytes)) return fail_with(cudaErrorInvalidValue);
    in_order(stream, "cudaMemsetAsync", to, bytes, true);
    memset(to, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes, nullptr); }
// Where to copy, or null for more than the variable holds.
static char* in_symbol(const void* symbol, size_t bytes, size_t offset) {
    EmuRegion r;
    if (region_of(reinterpret_cast<uintptr_t>(symbol), &r) && offset + bytes > r.bytes) return nullptr;
    return static_cast<char*>(const_cast<void*>(symbol)) + offset;
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes, size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t stream) {
    char* to = in_symbol(symbol, bytes, offset);
    return to ? cudaMemcpyAsync(to, from, bytes, kind, stream) : fail_with(cudaErrorInvalidValue);
}
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
    const char* from = in_symbol(symbol, bytes, offset);
    return from ? cudaMemcpyAsync(to, from, bytes, kind, stream) : fail_with(cudaErrorInvalidValue);
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind) {
    const auto error = cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, nullptr);
    wait_for_stream(nullptr);
    return error;
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind) {
    const auto error = cudaMemcpyFromSymbolAsync(to, symbol, bytes, offset, kind, nullptr);
    wait_for_stream(nullptr);
    return error;
}
cudaError_t cudaGetSymbolAddress(void** pointer, const void* symbol) {
    *pointer = const_cast<void*>(symbol);
    return cudaSuccess;
}
cudaError_t cudaGetSymbolSize(size_t*, const void*) { return fail_with(cudaErrorNotSupported); }

// ---- functions
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || size_t(value) > kDynamicSharedLimit) return fail_with(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> guard(lock);
    raised_limits[function] = size_t(value);
    return cudaSuccess;
}
cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* function) {
    *out = cudaFuncAttributes{};
    out->maxThreadsPerBlock = 1024;
    out->numRegs = 32;
    out->maxDynamicSharedSizeBytes = int(dynamic_shared_limit(function));
    out->binaryVersion = out->ptxVersion = 90;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads, size_t shared) {
    *blocks = int(blocks_per_multiprocessor(uint64_t(std::max(0, threads)), shared));
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int threads,
                                                                   size_t shared, unsigned) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

static int attribute_value(cudaDeviceAttr attribute) {
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: return 1024;
        case cudaDevAttrMaxBlockDimX:
        case cudaDevAttrMaxBlockDimY: return 1024;
        case cudaDevAttrMaxBlockDimZ: return 64;
        case cudaDevAttrMaxGridDimX: return 2147483647;
        case cudaDevAttrMaxGridDimY:
        case cudaDevAttrMaxGridDimZ: return 65535;
        case cudaDevAttrMaxSharedMemoryPerBlock: return int(kStaticSharedLimit);
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: return int(kDynamicSharedLimit);
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return int(kSharedPerMultiprocessor);
        case cudaDevAttrReservedSharedMemoryPerBlock: return 1024;
        case cudaDevAttrWarpSize: return 32;
        case cudaDevAttrMaxRegistersPerBlock:
        case cudaDevAttrMaxRegistersPerMultiprocessor: return 65536;
        case cudaDevAttrMultiProcessorCount: return kMultiprocessors;
        case cudaDevAttrMaxThreadsPerMultiProcessor: return kThreadsPerMultiprocessor;
        case cudaDevAttrMaxBlocksPerMultiprocessor: return kBlocksPerMultiprocessor;
        case cudaDevAttrComputeCapabilityMajor: return 9;
        case cudaDevAttrComputeCapabilityMinor: return 0;
        case cudaDevAttrCooperativeLaunch:
        case cudaDevAttrClusterLaunch:
        case cudaDevAttrMemoryPoolsSupported:
        case cudaDevAttrConcurrentKernels:
        case cudaDevAttrUnifiedAddressing: return 1;
        case cudaDevAttrL2CacheSize: return 50 << 20;
        case cudaDevAttrTotalConstantMemory: return 65536;
        case cudaDevAttrClockRate: return 1980000;
        case cudaDevAttrMemoryClockRate: return 3201000;
        case cudaDevAttrGlobalMemoryBusWidth: return 6144;
        default: return 0;
    }
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    *value = attribute_value(attribute);
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
    *p = cudaDeviceProp{};
    strcpy(p->name, "CUDA emulator on the CPU");
    p->totalGlobalMem = emu_memory_total_bytes();
    p->totalConstMem = 65536;
    p->sharedMemPerBlock = kStaticSharedLimit;
    p->sharedMemPerBlockOptin = kDynamicSharedLimit;
    p->sharedMemPerMultiprocessor = kSharedPerMultiprocessor;
    p->reservedSharedMemPerBlock = 1024;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = kThreadsPerMultiprocessor;
    p->maxBlocksPerMultiProcessor = kBlocksPerMultiprocessor;
    p->multiProcessorCount = kMultiprocessors;
    p->major = 9;
    p->cooperativeLaunch = p->clusterLaunch = p->concurrentKernels = p->unifiedAddressing = 1;
    p->l2CacheSize = 50 << 20;
    p->memoryBusWidth = 6144;
    const int grid[] = {2147483647, 65535, 65535}, block[] = {1024, 1024, 64};
    std::copy(grid, grid + 3, p->maxGridSize);
    std::copy(block, block + 3, p->maxThreadsDim);
    return cudaSuccess;
}
}  // extern "C"
