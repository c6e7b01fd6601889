// A CUDA source's functions for Python, without pybind11, which takes longer to compile than most kernels. The half
// that knows Python is compiled once, with the emulator: csrc/python/bind.cpp.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

struct _object;  // Python's PyObject

namespace emu::bind {

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

// An argument or a result: one of the members, by its kind. Nothing here is a template that each source would compile.
struct Value {
    at::Tensor tensor;
    std::vector<at::Tensor> tensors;
    double real = 0;
    int64_t integer = 0;   // also a bool
    bool is_none = false;
};

// What a function gives: one value, or those of a tuple.
class Results {
public:
    void give(at::Tensor tensor);
    void give(std::vector<at::Tensor> tensors);
    void give_real(double real);
    void give_integer(int64_t integer);
    const std::vector<Value>& values() const { return values_; }

private:
    std::vector<Value> values_;
};

// One function: what it takes and gives, and `run`, which calls it.
struct Function {
    const char* name;
    const char* doc;
    std::vector<Kind> takes;
    Kind gives;
    void (*run)(Value* arguments, Results& results);
};

[[noreturn]] void does_not_fit(int64_t whole);

template <class T>
T unboxed(Value& value) {
    if constexpr (std::is_same_v<T, bool>) {
        return value.integer != 0;
    } else if constexpr (std::is_integral_v<T>) {
        if (!std::in_range<T>(value.integer)) does_not_fit(value.integer);
        return static_cast<T>(value.integer);
    } else if constexpr (std::is_floating_point_v<T>) {
        return static_cast<T>(value.real);
    } else if constexpr (std::is_same_v<T, std::vector<at::Tensor>>) {
        return std::move(value.tensors);
    } else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) {
        return value.is_none ? std::nullopt : std::optional(std::move(value.tensor));
    } else {
        return std::move(value.tensor);
    }
}

template <class T>
void give(Results& results, T&& value) {
    using Plain = std::decay_t<T>;
    if constexpr (std::is_same_v<Plain, bool>) {
        results.give_integer(value);
    } else if constexpr (std::is_floating_point_v<Plain>) {
        results.give_real(value);
    } else if constexpr (std::is_integral_v<Plain>) {
        if (!std::in_range<int64_t>(value)) does_not_fit(static_cast<int64_t>(value));
        results.give_integer(static_cast<int64_t>(value));
    } else {
        results.give(std::forward<T>(value));
    }
}

template <auto kFunction>
struct Bound;

template <class R, class... A, R (*kFunction)(A...)>
struct Bound<kFunction> {
    template <size_t... i>
    static R call(Value* values, std::index_sequence<i...>) {
        std::tuple<std::decay_t<A>...> arguments{unboxed<std::decay_t<A>>(values[i])...};
        return std::apply(kFunction, arguments);
    }

    static void run(Value* values, Results& results) {
        if constexpr (std::is_void_v<R>) {
            call(values, std::index_sequence_for<A...>{});
        } else if constexpr (IsTuple<std::decay_t<R>>::value) {
            std::apply([&](auto&&... each) { (give(results, each), ...); }, call(values, std::index_sequence_for<A...>{}));
        } else {
            give(results, call(values, std::index_sequence_for<A...>{}));
        }
    }

    static Function named(const char* name, const char* doc) {
        return {name, doc, {kind_of<std::decay_t<A>>()...}, kind_of<std::decay_t<R>>(), &run};
    }
};

// A Python module of them. Raises in Python what a function throws, and launches whose error nobody looked at.
_object* module(const char* name, std::vector<Function> functions);

}  // namespace emu::bind
