// Variables of a module, which __device__, __constant__ and __managed__ declare at namespace scope.
#pragma once
#include <cstddef>

namespace emu {
// `alone`: no other variable of the source may lie behind this one unknown to the runtime.
void add_module_variable(const volatile void* data, size_t bytes, const char* name, bool constant, bool alone);

struct ModuleVariable {   // the translator writes one behind each declaration
    template <class T>
    ModuleVariable(const volatile T& variable, const char* name, bool constant, bool alone) {
        add_module_variable(&reinterpret_cast<const volatile char&>(variable), sizeof(T), name, constant, alone);
    }
};
}  // namespace emu
