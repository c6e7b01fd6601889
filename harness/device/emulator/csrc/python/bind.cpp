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
c10::IValue cast(Kind kind, py::handle given) {
    switch (kind) {
        case Kind::tensor: return py::cast<at::Tensor>(given);
        case Kind::tensors: return py::cast<std::vector<at::Tensor>>(given);
        case Kind::optional_tensor: return given.is_none() ? c10::IValue() : c10::IValue(py::cast<at::Tensor>(given));
        case Kind::real: return py::cast<double>(given);
        case Kind::integer: return py::cast<int64_t>(given);
        default: return py::cast<bool>(given);
    }
}

Values taken(const Function& function, const py::args& given) {
    const std::string name = function.name;
    if (given.size() != function.takes.size()) {
        throw py::type_error(name + "() takes " + std::to_string(function.takes.size()) + " arguments, and " +
                             std::to_string(given.size()) + " were given");
    }
    Values values;
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

py::object given_back(Kind kind, const c10::IValue& value) {
    switch (kind) {
        case Kind::tensor: return py::cast(value.toTensor());
        case Kind::tensors: return py::cast(value.toTensorVector());
        case Kind::optional_tensor: return value.isNone() ? py::none() : py::cast(value.toTensor());
        case Kind::real: return py::float_(value.toDouble());
        case Kind::integer: return py::int_(value.toInt());
        case Kind::boolean: return py::bool_(value.toBool());
        default: return py::none();
    }
}

py::object called(const Function& function, const py::args& given) {
    Values values = taken(function, given);
    function.run(values);
    raise_unseen_error();
    if (function.gives == Kind::nothing) return py::none();
    if (function.gives != Kind::tuple) return given_back(function.gives, values[0]);
    py::tuple results(values.size());
    for (size_t i = 0; i < values.size(); i++) results[i] = given_back(Kind::tensor, values[i]);
    return results;
}

}  // namespace

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
