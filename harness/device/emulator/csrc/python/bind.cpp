// Functions of an extension as a Python module: the half of emu/bind.h that knows Python.
#include "../../include/emu/bind.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <string>

#include "../../include/emu/runtime.h"

namespace emu::bind {
namespace {

const char* words_for(Kind kind) {
    switch (kind) {
        case Kind::tensor: return "a tensor";
        case Kind::tensors: return "a list of tensors";
        case Kind::optional_tensor: return "a tensor or None";
        case Kind::real: return "a number";
        case Kind::integer: return "an int";
        default: return "a bool";
    }
}

// Raises py::cast_error; the conversions are those of pybind11 and torch.
Value cast(Kind kind, py::handle given) {
    Value value;
    switch (kind) {
        case Kind::tensor: value.tensor = py::cast<at::Tensor>(given); break;
        case Kind::tensors: value.tensors = py::cast<std::vector<at::Tensor>>(given); break;
        case Kind::optional_tensor:
            value.is_none = given.is_none();
            if (!value.is_none) value.tensor = py::cast<at::Tensor>(given);
            break;
        case Kind::real: value.real = py::cast<double>(given); break;
        case Kind::integer: value.integer = py::cast<int64_t>(given); break;
        default: value.integer = py::cast<bool>(given);
    }
    return value;
}

std::vector<Value> taken(const Function& function, const py::args& given) {
    const std::string name = function.name;
    if (given.size() != function.takes.size()) {
        throw py::type_error(name + "() takes " + std::to_string(function.takes.size()) + " arguments, and " +
                             std::to_string(given.size()) + " were given");
    }
    std::vector<Value> values;
    for (size_t i = 0; i < given.size(); i++) {
        const py::handle argument = given[i];
        try {
            values.push_back(cast(function.takes[i], argument));
        } catch (const py::cast_error&) {
            throw py::type_error(name + "(): argument " + std::to_string(i + 1) + " is a " +
                                 Py_TYPE(argument.ptr())->tp_name + ", where " + words_for(function.takes[i]) +
                                 " is expected");
        }
    }
    return values;
}

py::object given_back(Kind kind, const Value& value) {
    switch (kind) {
        case Kind::tensor: return py::cast(value.tensor);
        case Kind::tensors: return py::cast(value.tensors);
        case Kind::real: return py::float_(value.real);
        case Kind::integer: return py::int_(value.integer);
        case Kind::boolean: return py::bool_(value.integer != 0);
        default: return py::none();
    }
}

py::object called(const Function& function, const py::args& given) {
    std::vector<Value> arguments = taken(function, given);
    Results results;
    function.run(arguments.data(), results);
    raise_unseen_error();
    const std::vector<Value>& values = results.values();
    if (function.gives == Kind::nothing) return py::none();
    if (function.gives != Kind::tuple) return given_back(function.gives, values[0]);
    py::tuple tuple(values.size());
    for (size_t i = 0; i < values.size(); i++) tuple[i] = given_back(Kind::tensor, values[i]);
    return tuple;
}

}  // namespace

void Results::give(at::Tensor tensor) { values_.push_back({.tensor = std::move(tensor)}); }
void Results::give(std::vector<at::Tensor> tensors) { values_.push_back({.tensors = std::move(tensors)}); }
void Results::give_real(double real) { values_.push_back({.real = real}); }
void Results::give_integer(int64_t integer) { values_.push_back({.integer = integer}); }

void does_not_fit(int64_t whole) {
    TORCH_CHECK_TYPE(false, whole, " does not fit into the function's integer argument");
}

PyObject* module(const char* name, std::vector<Function> functions) {
    auto* definition = new PyModuleDef{PyModuleDef_HEAD_INIT, name, nullptr, -1};
    PyObject* made = PyModule_Create(definition);
    if (!made) return nullptr;
    auto result = py::reinterpret_steal<py::module_>(made);
    for (const Function& function : functions) {
        result.def(function.name, torch::wrap_pybind_function([function](const py::args& given) -> py::object {
                       return called(function, given);
                   }),
                   function.doc);
    }
    return result.release().ptr();
}

}  // namespace emu::bind
