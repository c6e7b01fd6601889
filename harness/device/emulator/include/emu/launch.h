// <<<...>>> and the cudaLaunch functions, for kernels that are ordinary functions here.
#pragma once
#define EMU_TEXT(...) #__VA_ARGS__
#include <type_traits>
#include <utility>

#include "runtime.h"

namespace emu {
template <class T>
inline void check_argument(const LaunchConfig& config, unsigned number, const T& argument) {
    if constexpr (std::is_pointer_v<T> && std::is_object_v<std::remove_pointer_t<T>>) {
        check_pointer(config, number, argument);
    }
}

template <class F, class... A>
inline cudaError_t run(LaunchConfig config, F kernel, A... arguments) {
    static_assert((sizeof(A) + ... + 0) <= 32764,
                  "a kernel's parameters take 32,764 bytes at most, and these take more: nvcc refuses this");
    config.kernel = kernel_name(config.kernel, config.function);
    unsigned number = 0;
    (check_argument(config, ++number, arguments), ...);
    // Kernels may change their parameters, so that each thread gets its own copy. A lambda takes the compiler less time
    // than a std::tuple.
    auto call = [kernel, ... parameters = std::move(arguments)] { kernel(A(parameters)...); };
    using Call = decltype(call);
    auto body = [](void* context) { (*static_cast<const Call*>(context))(); };
    auto copy = [](const void* context) -> void* { return new Call(*static_cast<const Call*>(context)); };
    auto drop = [](void* copied) { delete static_cast<Call*>(copied); };
    return launch(config, body, Context{&call, sizeof call, copy, drop});
}

template <class T>
struct identity {
    using type = T;
};

template <class T>
inline const void* stream_of(const T& stream) {
    if constexpr (std::is_convertible_v<T, cudaStream_t>) return static_cast<cudaStream_t>(stream);
    else return nullptr;   // <<<..., 0>>>
}

struct Launcher {
    LaunchConfig config;

    template <class S = int, class T = std::nullptr_t>
    Launcher(const char* kernel, const char* file, int line, const void* function, dim3 grid, dim3 block, S shared = 0,
             T stream = {})
        : config{grid, block, static_cast<size_t>(shared), stream_of(stream), kernel, file, line, function, false,
                 dim3(1), true} {}

    Launcher& in_clusters(dim3 size) {
        config.cluster = size;
        return *this;
    }
    // Any callable: templates whose arguments are deduced have no address.
    template <class F, class... A>
    void call(F kernel, A... arguments) const {
        run(config, kernel, std::move(arguments)...);
    }
    // A kernel with an address: the parameter types convert the arguments, as at an ordinary call.
    template <class... P>
    void typed(void (*kernel)(P...), typename identity<P>::type... arguments) const {
        run(config, kernel, std::forward<P>(arguments)...);
    }
};

template <class... P, size_t... I>
inline void call_with(void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_reference_t<P>*>(arguments[I])...);
}

// The argument pointers of cudaLaunchKernel are read once, at the launch, as CUDA does.
template <class... P, size_t... I>
inline cudaError_t run_from_pointers(const LaunchConfig& config, void (*kernel)(P...), void** arguments,
                                     std::index_sequence<I...>) {
    return run(config, kernel, *static_cast<std::remove_reference_t<P>*>(arguments[I])...);
}

struct ApiCall {  // the call site of a cudaLaunch function
    const char* kernel;
    const char* file;
    int line;
    bool cooperative;
    dim3 cluster;

    template <class... P>
    cudaError_t operator()(void (*kernel_function)(P...), dim3 grid, dim3 block, void** arguments,
                           size_t shared = 0, cudaStream_t stream = nullptr) const {
        LaunchConfig config{grid, block, shared, stream, kernel, file, line,
                            reinterpret_cast<const void*>(kernel_function), cooperative, cluster, false};
        return run_from_pointers(config, kernel_function, arguments, std::index_sequence_for<P...>{});
    }

    cudaError_t operator()(const void*, dim3, dim3, void**, size_t = 0, cudaStream_t = nullptr) const
        __attribute__((error("unsupported_by_emulator: a launch through a pointer without the kernel's type")));

    LaunchConfig from_attributes(const cudaLaunchConfig_t* given, const void* function) const {
        LaunchConfig config{given->gridDim, given->blockDim, given->dynamicSmemBytes, given->stream, kernel,
                            file, line, function, false, cluster, false};
        for (unsigned i = 0; i < given->numAttrs; i++) {
            const cudaLaunchAttribute& attribute = given->attrs[i];
            if (attribute.id == cudaLaunchAttributeCooperative) config.cooperative = attribute.val.cooperative;
            if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization) {
                config.early = attribute.val.programmaticStreamSerializationAllowed;
            }
            if (attribute.id == cudaLaunchAttributeClusterDimension) {
                const auto& c = attribute.val.clusterDim;
                config.cluster = dim3(c.x, c.y, c.z);
            }
        }
        return config;
    }
    template <class... P>
    cudaError_t extended(const cudaLaunchConfig_t* given, void (*kernel_function)(P...),
                         typename identity<P>::type... arguments) const {
        auto* function = reinterpret_cast<const void*>(kernel_function);
        return run(from_attributes(given, function), kernel_function, std::forward<P>(arguments)...);
    }
    template <class... P>
    cudaError_t extended_c(const cudaLaunchConfig_t* given, void (*kernel_function)(P...), void** arguments) const {
        auto* function = reinterpret_cast<const void*>(kernel_function);
        return run_from_pointers(from_attributes(given, function), kernel_function, arguments,
                                 std::index_sequence_for<P...>{});
    }
};

// A function, not braces: the call may stand in the argument of a macro.
inline ApiCall api_call(const char* kernel, const char* file, int line, bool cooperative, dim3 cluster) {
    return ApiCall{kernel, file, line, cooperative, cluster};
}
}  // namespace emu
