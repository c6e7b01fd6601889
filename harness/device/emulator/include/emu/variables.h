// Variables of a module, which __device__, __constant__ and __managed__ declare at namespace scope.
#pragma once
#include <cstddef>

namespace emu {
void add_module_variable(const volatile void* data, size_t bytes, const char* name, bool constant);

struct ModuleVariable {   // the translator writes one behind each declaration
    template <class T>
    ModuleVariable(const volatile T& variable, const char* name, bool constant) {
        add_module_variable(&reinterpret_cast<const volatile char&>(variable), sizeof(T), name, constant);
    }
};
}  // namespace emu
