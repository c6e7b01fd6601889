// Defects as they are noted while a kernel runs, and as they are handed to Python.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace emu {
using Coordinates = std::array<unsigned, 3>;   // x, y, z

struct RawFinding {
    std::string kind, message;
    std::string kernel, file;
    int launch = 0;
    int line = 0;
    uintptr_t at = 0;      // machine address to be resolved to a line, or 0
    uintptr_t caller = 0;  // return address to try when `at` is in no line of the file, or 0
    const char* access = "";        // "reads" or "writes", where it is one access
    const char* other_access = "";  // "wrote" or "read": the earlier one that it conflicts with
    uintptr_t other = 0;   // address of that one, or 0
    int other_line = 0;    // its line, where that is known
    uintptr_t unless_polled = 0;   // a race of volatile accesses, but where this word is polled, or at `polled_site`
    uintptr_t polled_site = 0;
    uint64_t unless_compared = 0;  // a race, but where this read is a guess for a compare-and-swap
    bool of_value = false; // of an undefined value, which harms only where it is used
    std::optional<Coordinates> block, thread;   // empty where nobody knows whose access it was
};

// Turn `at` into file and line and complete the message. Runs a program, so only after the launch.
void resolve(RawFinding& finding);
void keep(const RawFinding& finding);       // for emu_take_findings
std::string sentence(const RawFinding& finding);
}  // namespace emu

extern "C" const char* emu_take_findings();   // a JSON array, valid until the next call
