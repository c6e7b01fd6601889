// Forms of the runtime API that cuda_runtime.h declares for nvcc only.
#pragma once
#include "runtime.h"

template <class... P>
inline cudaError_t cudaFuncSetAttribute(void (*f)(P...), cudaFuncAttribute attribute, int value) {
    return ::cudaFuncSetAttribute(reinterpret_cast<const void*>(f), attribute, value);
}
template <class... P>
inline cudaError_t cudaFuncSetCacheConfig(void (*f)(P...), cudaFuncCache config) {
    return ::cudaFuncSetCacheConfig(reinterpret_cast<const void*>(f), config);
}
template <class... P>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, void (*f)(P...)) {
    return ::cudaFuncGetAttributes(out, reinterpret_cast<const void*>(f));
}
template <class... P>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*f)(P...), int threads,
                                                                 size_t shared) {
    return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, reinterpret_cast<const void*>(f), threads, shared);
}
template <class... P>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, void (*)(P...), size_t shared = 0,
                                                      int limit = 0) {
    *block = limit > 0 && limit < 1024 ? limit : 1024;
    int per_multiprocessor = 0, multiprocessors = 0;
    ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, nullptr, *block, shared);
    ::cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    *grid = per_multiprocessor * multiprocessors;
    return cudaSuccess;
}
template <class... P>
inline cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, void (*)(P...), const cudaLaunchConfig_t* config) {
    int per_multiprocessor = 0, multiprocessors = 0, size = 1;
    const dim3 b = config->blockDim;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const auto& attribute = config->attrs[i];
        if (attribute.id != cudaLaunchAttributeClusterDimension) continue;
        size = int(attribute.val.clusterDim.x * attribute.val.clusterDim.y * attribute.val.clusterDim.z);
    }
    ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, nullptr, int(b.x * b.y * b.z),
                                                    config->dynamicSmemBytes);
    ::cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    *clusters = per_multiprocessor * multiprocessors / size;
    return cudaSuccess;
}
template <class T>
inline cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t bytes, size_t offset = 0,
                                      cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
    return ::cudaMemcpyToSymbol(reinterpret_cast<const void*>(&symbol), from, bytes, offset, kind);
}
template <class T>
inline cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* from, size_t bytes, size_t offset,
                                           cudaMemcpyKind kind, cudaStream_t stream = nullptr) {
    return ::cudaMemcpyToSymbolAsync(reinterpret_cast<const void*>(&symbol), from, bytes, offset, kind, stream);
}
template <class T>
inline cudaError_t cudaMemcpyFromSymbol(void* to, T& symbol, size_t bytes, size_t offset = 0,
                                        cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
    return ::cudaMemcpyFromSymbol(to, reinterpret_cast<const void*>(&symbol), bytes, offset, kind);
}
template <class T>
inline cudaError_t cudaMemcpyFromSymbolAsync(void* to, T& symbol, size_t bytes, size_t offset, cudaMemcpyKind kind,
                                             cudaStream_t stream = nullptr) {
    return ::cudaMemcpyFromSymbolAsync(to, reinterpret_cast<const void*>(&symbol), bytes, offset, kind, stream);
}
template <class T>
inline cudaError_t cudaGetSymbolSize(size_t* bytes, T&) {
    *bytes = sizeof(T);
    return cudaSuccess;
}
template <class T>
inline cudaError_t cudaGetSymbolAddress(void** pointer, T& symbol) {
    *pointer = reinterpret_cast<void*>(&symbol);
    return cudaSuccess;
}
