// Device memory: ordinary host memory between guard pages, so that a wild access traps at once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

struct EmuRegion {
    uintptr_t map;     // start of the mapping, guard pages included
    size_t map_bytes;  // length of the mapping
    uintptr_t data;    // what the owner sees
    size_t bytes;      // what the owner asked for
    uint64_t number;   // of the allocation: the address may have been another one's
};

extern "C" {
void* emu_allocate(size_t bytes);                           // nullptr when the card or this machine has no room
int emu_release(void* data);                                // 0 when `data` is no live allocation
int emu_find_region(uintptr_t address, EmuRegion* out);     // live allocation whose mapping holds address
int emu_find_freed(uintptr_t address, EmuRegion* out);      // the same among those recently freed
uint64_t emu_memory_generation();                           // grows with every allocation and release
uint64_t emu_memory_total_bytes();                          // the card's
uint64_t emu_memory_live_bytes();
uint64_t emu_memory_peak_bytes();
void emu_memory_reset_peak();
void emu_name(const void* data, const char* name);          // what messages call the allocation at `data`
void emu_name_size(size_t bytes, const char* name);         // the same for those of so many bytes without a name
void emu_forget_sizes();
}

namespace emu {
// Every 16 bits of it are a NaN in half and bfloat16, every 32 a float NaN, every 64 a double NaN; as an
// integer it is a value nobody stores on purpose. A kernel that reads it reads what nobody wrote.
constexpr uint32_t kPoison = 0xFFA5FFA5u;

// A variable of a loaded module, as a region of zeroes; its mapping reaches as far as nothing else can lie.
struct Variable {
    EmuRegion region;
    std::string name;
    bool constant = false;
};
bool find_variable(uintptr_t address, Variable* out);
// The address lies among variables of a module that lists them, and in none; `nearest` is the one before it.
bool beside_variables(uintptr_t address, std::string* nearest);
bool is_variable(uint64_t number);   // a region's number is a variable's
bool region_of(uintptr_t address, EmuRegion* out);   // of a live allocation or of a variable

std::string called(const EmuRegion& region);   // its name, or "an allocation"

struct Overrun {
    EmuRegion region;
    ptrdiff_t offset;  // of the first damaged byte from the region's data
};
// The bytes between an allocation and its guard pages still hold the poison unless somebody wrote there.
// Returns true and repairs the damage for the first allocation where that is not so.
bool find_overrun(Overrun* out);
}  // namespace emu
