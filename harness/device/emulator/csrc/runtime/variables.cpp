// Variables of modules: who declared them says where they lie, and in check mode the module itself lists all.
#include "../../include/emu/variables.h"

#include <cxxabi.h>
#include <link.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "memory.h"

namespace emu {
namespace {
constexpr uint64_t kFirstNumber = uint64_t(1) << 63;   // no allocation comes that far
constexpr uintptr_t kGap = 32;   // bytes on either side of a listed variable that are nobody's
std::mutex lock;
std::map<uintptr_t, Variable> variables;   // by start; a library with kernels is never unloaded
struct Range {
    uintptr_t begin, end;
    bool holds(uintptr_t address) const { return address >= begin && address < end; }
};
std::vector<Range> listed;   // where modules that list their variables keep what can be written
uint64_t next_number = kFirstNumber;

Variable& variable_at(uintptr_t begin, size_t bytes) {
    auto [own, is_new] = variables.try_emplace(begin);
    if (is_new) own->second.region = EmuRegion{begin, bytes, begin, bytes, ++next_number};
    return own->second;
}

struct ModuleEntry {   // the table that module_variables.py writes
    const void* data;
    size_t bytes;
    const char* symbol;
};

std::string demangled(const char* symbol) {
    int failed = 0;
    char* name = abi::__cxa_demangle(symbol, nullptr, nullptr, &failed);
    std::string found = failed ? symbol : name;
    free(name);
    return found;
}

// Behind the part that is only written while the module is loaded.
int find_listed(dl_phdr_info* image, size_t, void* table) {
    const auto wanted = reinterpret_cast<uintptr_t>(table);
    Range data{}, loading{};
    bool own = false;
    for (int i = 0; i < image->dlpi_phnum; i++) {
        const auto& header = image->dlpi_phdr[i];
        const uintptr_t begin = image->dlpi_addr + header.p_vaddr;
        const Range part{begin, begin + header.p_memsz};
        if (header.p_type == PT_LOAD) own |= part.holds(wanted);
        if (header.p_type == PT_LOAD && header.p_flags & PF_W) data = part;
        if (header.p_type == PT_GNU_RELRO) loading = part;
    }
    if (own) listed.push_back({std::max(data.begin, loading.end), data.end});
    return own;
}

uintptr_t end_of(const Variable& variable) { return variable.region.data + variable.region.bytes; }

bool is_listed(uintptr_t address) {   // elsewhere what lies beside a variable may be another, or the host's
    return std::any_of(listed.begin(), listed.end(), [&](const Range& range) { return range.holds(address); });
}
}  // namespace

void add_module_variable(const volatile void* data, size_t bytes, const char* name, bool constant) {
    const std::lock_guard<std::mutex> guard(lock);
    Variable& variable = variable_at(reinterpret_cast<uintptr_t>(data), bytes);
    variable.name = name;
    variable.constant = constant;
}

bool find_variable(uintptr_t address, Variable* out) {
    const std::lock_guard<std::mutex> guard(lock);
    const uintptr_t gap = is_listed(address) ? kGap : 0;
    auto next = variables.upper_bound(address);
    auto own = next == variables.begin() ? variables.end() : std::prev(next);
    if (own == variables.end() || address >= end_of(own->second) + gap) own = next;
    if (own == variables.end() || address + gap < own->first) return false;
    *out = own->second;
    uintptr_t begin = own->first - gap, end = end_of(own->second) + gap;
    if (own != variables.begin()) begin = std::max(begin, std::min(own->first, end_of(std::prev(own)->second)));
    if (const auto after = std::next(own); after != variables.end()) {
        end = std::max(end_of(own->second), std::min(end, after->first));
    }
    out->region.map = begin;
    out->region.map_bytes = end - begin;
    return true;
}

bool beside_variables(uintptr_t address, std::string* nearest) {
    const std::lock_guard<std::mutex> guard(lock);
    if (!is_listed(address)) return false;
    const auto next = variables.upper_bound(address);
    if (next != variables.begin()) *nearest = std::prev(next)->second.name;
    return true;
}

bool region_of(uintptr_t address, EmuRegion* out) {
    Variable variable;
    if (!find_variable(address, &variable)) return emu_find_region(address, out);
    *out = variable.region;
    return true;
}

bool is_variable(uint64_t number) { return number > kFirstNumber; }
}  // namespace emu

extern "C" void emu_add_module_variables(const emu::ModuleEntry* entries, unsigned count) {
    const std::lock_guard<std::mutex> guard(emu::lock);
    dl_iterate_phdr(emu::find_listed, const_cast<emu::ModuleEntry*>(entries));
    for (unsigned i = 0; i < count; i++) {
        emu::Variable& variable = emu::variable_at(reinterpret_cast<uintptr_t>(entries[i].data), entries[i].bytes);
        if (variable.name.empty()) variable.name = emu::demangled(entries[i].symbol);
    }
}
