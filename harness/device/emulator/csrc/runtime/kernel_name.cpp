// A kernel's own name, where it is launched through a variable or a parameter that has another.
#include <cxxabi.h>
#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include "state.h"

namespace emu {
namespace {
// `name` of "void space::name<float, 4>(float*)".
std::string without_types(std::string name) {
    name.resize(std::min(name.find_first_of("<("), name.size()));
    const size_t before = name.find_last_of(" :");
    return before == std::string::npos ? name : name.substr(before + 1);
}

// Empty for a function that the object does not export, as those of a namespace without a name.
std::string exported_name(const void* function) {
    Dl_info info;
    if (!dladdr(function, &info) || info.dli_saddr != function || !info.dli_sname) return "";
    int status = 0;
    char* demangled = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
    const std::string name = without_types(demangled ? demangled : info.dli_sname);
    free(demangled);
    return name;
}
}  // namespace

// `written` is what stands at the launch. What is returned lives as long as the process.
const char* kernel_name(const char* written, const void* function) {
    if (!function) return written;
    static std::mutex lock;
    static auto& names = *new std::map<const void*, std::string>;
    std::lock_guard<std::mutex> guard(lock);
    const auto [found, is_new] = names.try_emplace(function);
    if (is_new) found->second = exported_name(function);
    return found->second.empty() ? written : found->second.c_str();
}
}  // namespace emu
