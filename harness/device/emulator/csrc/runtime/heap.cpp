// malloc, free, new and delete in kernels: device memory, as on a GPU. An extension is linked with --wrap for these names.
#include <cstdlib>
#include <new>

#include "check.h"

namespace emu {
namespace {
void* device_malloc(size_t bytes) {
    if (options.check) forbid_repeat();   // what a kernel allocates has another address each time
    return bytes ? emu_allocate(bytes) : nullptr;
}

void device_free(void* memory, void* caller) {
    if (!memory || emu_release(memory)) return;
    note_and_stop("out_of_bounds", "The kernel frees an address that malloc has not given to a kernel, or that has been "
                                   "freed already.", 0, reinterpret_cast<uintptr_t>(caller));
}
}  // namespace
}  // namespace emu

using namespace emu;

#define CALLER __builtin_return_address(0)

extern "C" {
void* __wrap_malloc(size_t bytes) { return current ? device_malloc(bytes) : malloc(bytes); }
void __wrap_free(void* memory) { current ? device_free(memory, CALLER) : free(memory); }
void* __wrap__Znwm(size_t bytes) { return current ? device_malloc(bytes) : operator new(bytes); }
void* __wrap__Znam(size_t bytes) { return current ? device_malloc(bytes) : operator new[](bytes); }
void __wrap__ZdlPv(void* memory) { current ? device_free(memory, CALLER) : operator delete(memory); }
void __wrap__ZdaPv(void* memory) { current ? device_free(memory, CALLER) : operator delete[](memory); }
void __wrap__ZdlPvm(void* memory, size_t bytes) { current ? device_free(memory, CALLER) : operator delete(memory, bytes); }
void __wrap__ZdaPvm(void* memory, size_t bytes) { current ? device_free(memory, CALLER) : operator delete[](memory, bytes); }
}
