// malloc, free, new and delete in kernels: device memory, as on a GPU. An extension is linked with --wrap for these names.
#include <cstdlib>
#include <mutex>
#include <new>
#include <set>

#include "check.h"

namespace emu {
namespace {
// Each lies in pages of its own, and a process may have some 65,000 mappings, of which one takes three.
constexpr size_t kMostLive = 8192;
std::mutex lock;
std::set<void*> live;   // of kernels, in this process

bool has_room() {
    const std::lock_guard<std::mutex> guard(lock);
    return live.size() < kMostLive;
}

void* device_malloc(size_t bytes, void* caller) {
    if (options.check) forbid_repeat();   // what a kernel allocates has another address each time
    if (!bytes) return nullptr;
    if (!has_room()) {
        note_and_stop("unsupported_by_emulator", text("Kernels keep more than %d allocations at a time; the emulator has "
                                                      "no room for more.", int(kMostLive)), 0,
                      reinterpret_cast<uintptr_t>(caller));
    }
    void* memory = emu_allocate(bytes);
    const std::lock_guard<std::mutex> guard(lock);
    if (memory) live.insert(memory);
    return memory;
}

bool is_taken_back(void* memory) {
    const std::lock_guard<std::mutex> guard(lock);
    return live.erase(memory) && emu_release(memory);
}

void device_free(void* memory, void* caller) {
    if (!memory || is_taken_back(memory)) return;
    note_and_stop("out_of_bounds", "The kernel frees an address that malloc has not given to a kernel, or that has been "
                                   "freed already.", 0, reinterpret_cast<uintptr_t>(caller));
}
}  // namespace
}  // namespace emu

using namespace emu;

#define CALLER __builtin_return_address(0)

extern "C" {
void* __wrap_malloc(size_t bytes) { return current ? device_malloc(bytes, CALLER) : malloc(bytes); }
void __wrap_free(void* memory) { current ? device_free(memory, CALLER) : free(memory); }
void* __wrap__Znwm(size_t bytes) { return current ? device_malloc(bytes, CALLER) : operator new(bytes); }
void* __wrap__Znam(size_t bytes) { return current ? device_malloc(bytes, CALLER) : operator new[](bytes); }
void __wrap__ZdlPv(void* memory) { current ? device_free(memory, CALLER) : operator delete(memory); }
void __wrap__ZdaPv(void* memory) { current ? device_free(memory, CALLER) : operator delete[](memory); }
void __wrap__ZdlPvm(void* memory, size_t bytes) { current ? device_free(memory, CALLER) : operator delete(memory, bytes); }
void __wrap__ZdaPvm(void* memory, size_t bytes) { current ? device_free(memory, CALLER) : operator delete[](memory, bytes); }
}
