#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

namespace {
constexpr uint64_t kCardBytes = uint64_t(80) << 30;   // of the memory that kernels and the host are told about
constexpr size_t kPage = 4096;
// A GPU aligns to 512 bytes. The data ends at the guard page so that a read past the end traps, and 32
// bytes is the widest vector a thread can load; more alignment would only hide overruns.
constexpr size_t kAlign = 32;
constexpr size_t kHead = 256;             // bytes before an allocation that are searched for damage
constexpr size_t kQuarantine = 1024;      // freed mappings kept inaccessible, so that late uses trap

std::mutex lock;
std::map<uintptr_t, EmuRegion> live, freed;   // by start of mapping
std::map<uintptr_t, uintptr_t> map_of_data;   // data pointer to start of mapping
std::deque<uintptr_t> freed_order;
std::atomic<uint64_t> generation{1};
uint64_t live_bytes = 0, peak_bytes = 0;

unsigned char poison_byte(uintptr_t address) {
    return address & 1 ? emu::kPoison >> 8 & 0xFF : emu::kPoison & 0xFF;
}

void fill_poison(uintptr_t from, size_t bytes) {
    auto* word = reinterpret_cast<uint64_t*>(from);   // `from` is a page start
    const uint64_t pattern = uint64_t(emu::kPoison) << 32 | emu::kPoison;
    for (size_t i = 0; i < bytes / 8; i++) word[i] = pattern;
}

int find_in(const std::map<uintptr_t, EmuRegion>& regions, uintptr_t address, EmuRegion* out) {
    std::lock_guard<std::mutex> guard(lock);
    auto it = regions.upper_bound(address);
    if (it == regions.begin()) return 0;
    --it;
    if (address >= it->second.map + it->second.map_bytes) return 0;
    *out = it->second;
    return 1;
}

// Give the pages back but keep the addresses, so that a dangling pointer traps instead of hitting a neighbour.
void quarantine(const EmuRegion& region) {
    mmap(reinterpret_cast<void*>(region.map), region.map_bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    freed[region.map] = region;
    freed_order.push_back(region.map);
    if (freed_order.size() <= kQuarantine) return;
    auto oldest = freed.find(freed_order.front());
    munmap(reinterpret_cast<void*>(oldest->second.map), oldest->second.map_bytes);
    freed.erase(oldest);
    freed_order.pop_front();
}

bool damaged(uintptr_t from, uintptr_t to, uintptr_t* where) {
    bool found = false;
    for (uintptr_t a = from; a < to; a++) {
        auto* byte = reinterpret_cast<unsigned char*>(a);
        if (*byte == poison_byte(a)) continue;
        if (!found) *where = a;
        found = true;
        *byte = poison_byte(a);
    }
    return found;
}
}  // namespace

namespace {
// Counted before the memory is there, so that no two threads share what is left.
bool take_room(size_t bytes) {
    std::lock_guard<std::mutex> guard(lock);
    if (bytes > kCardBytes - live_bytes) return false;
    live_bytes += bytes;
    peak_bytes = std::max(peak_bytes, live_bytes);
    return true;
}

void* without_room(size_t bytes) {
    std::lock_guard<std::mutex> guard(lock);
    live_bytes -= bytes;
    return nullptr;
}
}  // namespace

extern "C" void* emu_allocate(size_t bytes) {
    if (!take_room(bytes)) return nullptr;
    const size_t body = (bytes + kAlign - 1) / kAlign * kAlign;
    const size_t pages = (body + kPage - 1) / kPage * kPage;
    void* map = mmap(nullptr, pages + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return without_room(bytes);
    const uintptr_t start = reinterpret_cast<uintptr_t>(map);
    if (mprotect(reinterpret_cast<void*>(start + kPage), pages, PROT_READ | PROT_WRITE)) {
        munmap(map, pages + 2 * kPage);
        return without_room(bytes);
    }
    fill_poison(start + kPage, pages);
    const uintptr_t data = start + kPage + pages - body;
    std::lock_guard<std::mutex> guard(lock);
    live[start] = EmuRegion{start, pages + 2 * kPage, data, bytes, ++generation};
    map_of_data[data] = start;
    return reinterpret_cast<void*>(data);
}

extern "C" int emu_release(void* data) {
    std::lock_guard<std::mutex> guard(lock);
    auto entry = map_of_data.find(reinterpret_cast<uintptr_t>(data));
    if (entry == map_of_data.end()) return 0;
    auto it = live.find(entry->second);
    const EmuRegion region = it->second;
    live.erase(it);
    map_of_data.erase(entry);
    live_bytes -= region.bytes;
    generation++;
    quarantine(region);
    return 1;
}

extern "C" int emu_find_region(uintptr_t address, EmuRegion* out) { return find_in(live, address, out); }
extern "C" int emu_find_freed(uintptr_t address, EmuRegion* out) { return find_in(freed, address, out); }
extern "C" uint64_t emu_memory_generation() { return generation.load(std::memory_order_relaxed); }
extern "C" uint64_t emu_memory_total_bytes() { return kCardBytes; }
extern "C" uint64_t emu_memory_live_bytes() { return live_bytes; }
extern "C" uint64_t emu_memory_peak_bytes() { return peak_bytes; }
extern "C" void emu_memory_reset_peak() { peak_bytes = live_bytes; }

namespace {
// Names are for messages alone: where there are too many, as in a loop that never ends, all are forgotten.
constexpr size_t kMostNames = 4096;
std::unordered_map<uint64_t, std::string> names;         // by the number of the allocation
std::unordered_map<size_t, std::string> names_of_sizes;  // by its bytes
}  // namespace

extern "C" void emu_name(const void* data, const char* name) {
    EmuRegion region;
    if (!emu_find_region(reinterpret_cast<uintptr_t>(data), &region)) return;
    std::lock_guard<std::mutex> guard(lock);
    if (names.size() >= kMostNames) names.clear();
    names[region.number] = name;
}

extern "C" void emu_name_size(size_t bytes, const char* name) {
    std::lock_guard<std::mutex> guard(lock);
    if (names_of_sizes.size() >= kMostNames) names_of_sizes.clear();
    names_of_sizes.try_emplace(bytes, name);
}

extern "C" void emu_forget_sizes() {
    std::lock_guard<std::mutex> guard(lock);
    names_of_sizes.clear();
}

namespace emu {
std::string called(const EmuRegion& region) {
    std::lock_guard<std::mutex> guard(lock);
    if (const auto found = names.find(region.number); found != names.end()) return found->second;
    const auto found = names_of_sizes.find(region.bytes);
    return found == names_of_sizes.end() ? "an allocation" : found->second;
}

bool find_overrun(Overrun* out) {
    std::lock_guard<std::mutex> guard(lock);
    for (const auto& [start, region] : live) {
        const uintptr_t first = start + kPage, last = start + region.map_bytes - kPage;
        uintptr_t where = 0;
        const uintptr_t head = region.data - first > kHead ? region.data - kHead : first;
        if (damaged(region.data + region.bytes, last, &where) || damaged(head, region.data, &where)) {
            *out = Overrun{region, ptrdiff_t(where - region.data)};
            return true;
        }
    }
    return false;
}
}  // namespace emu
