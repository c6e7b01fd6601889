// A CUDA source's functions for Python, without pybind11, which takes longer to compile than most kernels. The half
// that knows Python is compiled once, with the emulator: csrc/python/bind.cpp.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

struct _object;  // Python's PyObject

namespace emu::bind {

using Values = std::vector<c10::IValue>;

enum class Kind { nothing, tensor, tensors, tuple, optional_tensor, real, integer, boolean };

template <class T>
struct IsTuple : std::false_type {};
template <class... T>
struct IsTuple<std::tuple<T...>> : std::true_type {};

template <class T>
constexpr Kind kind_of() {
    if constexpr (std::is_void_v<T>) return Kind::nothing;
    else if constexpr (std::is_same_v<T, at::Tensor>) return Kind::tensor;
    else if constexpr (std::is_same_v<T, std::vector<at::Tensor>>) return Kind::tensors;
    else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) return Kind::optional_tensor;
    else if constexpr (IsTuple<T>::value) return Kind::tuple;
    else if constexpr (std::is_same_v<T, bool>) return Kind::boolean;
    else if constexpr (std::is_floating_point_v<T>) return Kind::real;
    else {
        static_assert(std::is_integral_v<T>, "harness/device/emulator/binding.py lets no other type through");
        return Kind::integer;
    }
}

// One function: what it takes and gives, and `run`, which replaces its arguments with its results.
struct Function {
    const char* name;
    const char* doc;
    std::vector<Kind> takes;
    Kind gives;
    void (*run)(Values&);
};

template <class T>
T unboxed(const c10::IValue& value) {
    if constexpr (std::is_same_v<T, bool>) {
        return value.toBool();
    } else if constexpr (std::is_integral_v<T>) {
        const int64_t whole = value.toInt();
        TORCH_CHECK_TYPE(std::in_range<T>(whole), whole, " does not fit into the function's integer argument");
        return static_cast<T>(whole);
    } else if constexpr (std::is_floating_point_v<T>) {
        return static_cast<T>(value.toDouble());
    } else if constexpr (std::is_same_v<T, std::vector<at::Tensor>>) {
        return value.toTensorVector();
    } else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) {
        return value.isNone() ? std::nullopt : std::optional(value.toTensor());
    } else {
        return value.toTensor();
    }
}

template <auto kFunction>
struct Bound;

template <class R, class... A, R (*kFunction)(A...)>
struct Bound<kFunction> {
    template <size_t... i>
    static R call(const Values& values, std::index_sequence<i...>) {
        std::tuple<std::decay_t<A>...> arguments{unboxed<std::decay_t<A>>(values[i])...};
        return std::apply(kFunction, arguments);
    }

    static void run(Values& values) {
        if constexpr (std::is_void_v<R>) {
            call(values, std::index_sequence_for<A...>{});
            values.clear();
        } else if constexpr (IsTuple<std::decay_t<R>>::value) {
            std::apply([&](const auto&... each) { values = {c10::IValue(each)...}; },
                       call(values, std::index_sequence_for<A...>{}));
        } else {
            values = {c10::IValue(call(values, std::index_sequence_for<A...>{}))};
        }
    }

    static Function named(const char* name, const char* doc) {
        return {name, doc, {kind_of<std::decay_t<A>>()...}, kind_of<std::decay_t<R>>(), &run};
    }
};

// A Python module of them. Raises in Python what a function throws, and launches whose error nobody looked at.
_object* module(const char* name, std::vector<Function> functions);

}  // namespace emu::bind
