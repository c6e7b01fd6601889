// Variables of modules: who declared them says where they lie.
#include "../../include/emu/variables.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "memory.h"

namespace emu {
namespace {
constexpr uint64_t kFirstNumber = uint64_t(1) << 63;   // no allocation comes that far
constexpr uintptr_t kGap = 64;   // bytes behind a variable that are no other's, where no other begins
std::mutex lock;
std::map<uintptr_t, Variable> variables;   // by start; a library with kernels is never unloaded
uint64_t next_number = kFirstNumber;
}  // namespace

void add_module_variable(const volatile void* data, size_t bytes, const char* name, bool constant, bool alone) {
    const auto begin = reinterpret_cast<uintptr_t>(data);
    const std::lock_guard<std::mutex> guard(lock);
    const auto next = variables.upper_bound(begin);
    uintptr_t end = begin + bytes + (alone ? kGap : 0);
    if (next != variables.end()) end = std::max(begin + bytes, std::min(end, next->first));
    variables[begin] = {EmuRegion{begin, end - begin, begin, bytes, ++next_number}, name, constant};
    if (auto own = variables.find(begin); own != variables.begin()) {
        EmuRegion& before = std::prev(own)->second.region;
        before.map_bytes = std::max(before.bytes, std::min(before.map_bytes, begin - before.map));
    }
}

const Variable* find_variable(uintptr_t address) {
    const std::lock_guard<std::mutex> guard(lock);
    auto it = variables.upper_bound(address);
    if (it == variables.begin()) return nullptr;
    const Variable& found = std::prev(it)->second;
    return address - found.region.map < found.region.map_bytes ? &found : nullptr;
}

bool is_variable(uint64_t number) { return number > kFirstNumber; }
}  // namespace emu
