// Whose memory an access touches, and whether it may.
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "check.h"
#include "streams.h"

namespace emu {
namespace {
struct Range {
    uintptr_t begin, end;
    bool holds(uintptr_t a) const { return a >= begin && a < end; }
};
std::vector<Range> images;            // code and data of loaded libraries: constants and __device__ variables
std::vector<Range> argument_memory;   // the launching thread's stack, or what a CUDA graph keeps
thread_local std::vector<Range> thread_variables;   // of a thread that runs blocks; exactly those, for tensors lie beside
struct CachedRegion {
    EmuRegion region;
    std::optional<Variable> variable;   // none for an allocation
    GlobalCells followed;
    Works copies;   // that may run at the same time
    bool saved = false;   // for repeat.cpp
};
std::vector<CachedRegion> cache;
uint64_t cache_generation = 0;

int add_image(dl_phdr_info* image, size_t, void*) {
    for (int i = 0; i < image->dlpi_phnum; i++) {
        const auto& header = image->dlpi_phdr[i];
        if (header.p_type != PT_LOAD) continue;
        const uintptr_t begin = image->dlpi_addr + header.p_vaddr;
        images.push_back({begin, begin + header.p_memsz});
    }
    return 0;
}

void find_arguments(const Context& context) {
    pthread_attr_t attributes;
    void* low;
    size_t bytes;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &low, &bytes);
    pthread_attr_destroy(&attributes);
    const uintptr_t begin = reinterpret_cast<uintptr_t>(low);
    const uintptr_t data = reinterpret_cast<uintptr_t>(context.data);
    argument_memory = {{begin, begin + bytes}, {data, data + context.bytes}};
}

int add_thread_variables(dl_phdr_info* image, size_t, void*) {
    for (int i = 0; image->dlpi_tls_data && i < image->dlpi_phnum; i++) {
        const auto& header = image->dlpi_phdr[i];
        const auto begin = reinterpret_cast<uintptr_t>(image->dlpi_tls_data);
        if (header.p_type == PT_TLS) thread_variables.push_back({begin, begin + header.p_memsz});
    }
    return 0;
}

// The C library's head of a thread, which the addresses of its variables are computed from (tcbhead_t on x86-64).
constexpr size_t kThreadHeadBytes = 704;

void find_thread_variables() {
    const auto head = reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
    thread_variables = {{head, head + kThreadHeadBytes}};
    dl_iterate_phdr(add_thread_variables, nullptr);
}

bool in_any(const std::vector<Range>& ranges, uintptr_t address) {
    return std::any_of(ranges.begin(), ranges.end(), [address](const Range& range) { return range.holds(address); });
}

const char* verb(const Access& access) { return access.write ? "writes" : "reads"; }

[[noreturn]] void stop(const char* kind, const Access& access, const std::string& message) {
    note_and_stop(kind, message, access.line, access.pc);
}

[[noreturn]] void out_of_bounds(const Access& access, const char* what, long offset, size_t size) {
    const char* where = offset < 0 ? "before its start" : size_t(offset) >= size ? "behind its end" : "across its end";
    stop("out_of_bounds", access, text("The kernel %s %zu bytes at byte %ld of %s of %zu bytes, %s.", verb(access),
                                       access.bytes, offset, what, size, where));
}

bool poisoned_word(uintptr_t word) {
    uint32_t value;
    memcpy(&value, reinterpret_cast<const void*>(word), 4);
    return value == kPoison;
}

bool needs_value(const Access& access) { return !access.write || (is_atomic(access.kind) && !access.exchange); }

void check_global_initialised(const Access& access, const EmuRegion& region) {
    if (!needs_value(access)) return;
    const uintptr_t first = access.address & ~uintptr_t(3), last = (access.address + access.bytes - 1) & ~uintptr_t(3);
    for (uintptr_t word = first; word <= last; word += 4) {
        // Whole words of the allocation only: the rest behind it is poison too.
        if (word < region.data || word + 4 > region.data + region.bytes || !poisoned_word(word)) return;
    }
    note_value("uninitialised_read",
         text("The kernel reads %zu bytes of global memory that nobody has written, at byte %zu of %s of %zu bytes.",
              access.bytes, size_t(access.address - region.data), called(region).c_str(), region.bytes),
         current, access.line, access.pc);
}

// A word of which this launch has written one half, and nobody the other.
void check_half_written(const Access& access, const CachedRegion& entry) {
    if (access.bytes != 4 || access.address % 4 || access.write || !entry.followed.cells.first) return;
    uint16_t halves[2];
    memcpy(halves, reinterpret_cast<const void*>(access.address), sizeof halves);
    if (halves[0] != uint16_t(kPoison) && halves[1] != uint16_t(kPoison)) return;
    const Touch& written = entry.followed.cells.first[(access.address - entry.region.data) / 4].write;
    if (written.block < current->block->launch->first_serial) return;
    for (unsigned half = 0; half < 2; half++) {
        if (written.bytes >> 2 * half & 3 || halves[half] != uint16_t(kPoison)) continue;
        note_value("uninitialised_read",
             text("The kernel reads a word of global memory of which only a part has been written, at byte %zu of an "
                  "allocation of %zu bytes.", size_t(access.address - entry.region.data), entry.region.bytes),
             current, access.line, access.pc);
        return;
    }
}

void check_shared_initialised(const Access& access, Shadow* shadow, size_t offset, uintptr_t start) {
    auto* bytes = shadow->initialised.data() + offset;
    if (!access.write && *bytes && (access.bytes != 4 || bytes[3])) return;
    if (access.write) {
        size_t& used = offset < kStaticArena ? shadow->used_static : shadow->used_dynamic;
        used = std::max(used, offset + access.bytes);
    }
    if (access.write) {
        // Atomics read first, and counting from memory that was never set is the usual mistake.
        if (!needs_value(access) || *bytes) return void(memset(bytes, 1, access.bytes));
    }
    // Structs are copied with their padding: an access counts only when all it reads was never written, or half of a
    // word, for in 4 bytes one at most is padding.
    const size_t unset = size_t(std::count(bytes, bytes + access.bytes, 0));
    if (unset == access.bytes || (access.bytes == 4 && unset >= 2)) {
        note_value("uninitialised_read",
             text("The kernel reads %zu bytes of shared memory that nobody has written, at byte %zu.", access.bytes,
                  size_t(access.address - start)), current, access.line, access.pc);
    }
    if (access.write) memset(bytes, 1, access.bytes);
}

const Slot* find_slot(const BlockState* b, uintptr_t address) {
    const Slot* nearest = nullptr;
    for (const Slot& slot : b->slots) {
        const uintptr_t begin = reinterpret_cast<uintptr_t>(slot.data);
        if (address >= begin && address < begin + slot.bytes) return &slot;
        if (address + kRedZone >= begin && address < begin + slot.bytes + kRedZone) nearest = &slot;
    }
    return nearest;
}

void access_shared(const Access& access, BlockState* b) {
    const size_t offset = access.address - reinterpret_cast<uintptr_t>(b->arena);
    uintptr_t start = reinterpret_cast<uintptr_t>(b->dynamic);
    size_t size = b->dynamic_bytes;
    const char* what = "the block's dynamic shared memory";
    if (offset < kStaticArena) {
        const Slot* slot = find_slot(b, access.address);
        if (!slot) stop("out_of_bounds", access, text("The kernel %s shared memory outside of all variables.", verb(access)));
        start = reinterpret_cast<uintptr_t>(slot->data);
        size = slot->bytes;
        what = "a __shared__ variable";
    }
    if (access.address < start || access.address + access.bytes > start + size) {
        out_of_bounds(access, what, long(access.address - start), size);
    }
    check_shared_initialised(access, b->shadow, offset, start);
    follow(access, b->shadow->cells, b->launch->first_serial, b->arena, start, "shared");
    count_access(access, true);
}

CachedRegion* known_region(uintptr_t address) {
    if (cache_generation != emu_memory_generation()) {
        cache_generation = emu_memory_generation();
        cache.clear();
    }
    for (auto& entry : cache) {
        if (address - entry.region.map < entry.region.map_bytes) return &entry;
    }
    return nullptr;
}

// Takes a lock, and is for what `known_region` and `runtime_memory` do not know.
CachedRegion* find_region(uintptr_t address) {
    EmuRegion region;
    Variable variable;
    const bool in_variable = find_variable(address, &variable);
    if (in_variable) region = variable.region;
    else if (!emu_find_region(address, &region)) return nullptr;
    Works copies = unordered_copies(current->block->launch, region.number);
    cache.push_back({region, in_variable ? std::optional(variable) : std::nullopt, global_cells(region), std::move(copies)});
    return &cache.back();
}

void check_constant(const Access& access, const Variable& variable) {
    if (!variable.constant || !access.write) return;
    stop("write_to_constant", access, text("The kernel writes %s, which is __constant__: a GPU keeps old values in its "
                                           "caches, or faults.", variable.name.c_str()));
}

// Before the first write, and before a read of what nobody wrote: most allocations meet neither.
void save(CachedRegion& entry) {
    entry.saved = true;
    save_for_repeat(entry.region, entry.followed.cells.first);
}

void access_global(const Access& access, CachedRegion& entry) {
    const EmuRegion& region = entry.region;
    if (access.address < region.data || access.address + access.bytes > region.data + region.bytes) {
        const std::string name = entry.variable ? entry.variable->name : called(region);
        out_of_bounds(access, name.c_str(), long(access.address - region.data), region.bytes);
    }
    const Cells& cells = entry.followed.cells;
    if (cells.first) __builtin_prefetch(cells.first + (access.address - region.data) / 4, true);
    if (entry.variable) check_constant(access, *entry.variable);
    if (!entry.saved && (access.write || poisoned_word(access.address & ~uintptr_t(3)))) save(entry);
    if (!entry.variable) {
        check_global_initialised(access, region);
        check_half_written(access, entry);
    }
    const Launch* launch = current->block->launch;
    if (!entry.copies.empty()) check_against_copies(entry.copies, access);
    const uint32_t oldest = std::max(launch->oldest_serial, entry.followed.since_serial);
    const void* base = reinterpret_cast<const void*>(region.data);
    if (cells.first) follow(access, cells, oldest, base, region.data, "global");
    else count_not_followed(access.bytes);
    count_access(access, false);
}

bool in_image(uintptr_t address) {
    for (int attempt = 0; attempt < 2; attempt++) {
        if (in_any(images, address)) return true;
        if (attempt) break;
        images.clear();   // a library may have been loaded since
        dl_iterate_phdr(add_image, nullptr);
    }
    return false;
}

// What threadIdx and its like are read from.
bool built_in(uintptr_t address) {
    const BlockState* b = current_block();
    return address == reinterpret_cast<uintptr_t>(&current) ||
           address - reinterpret_cast<uintptr_t>(b->threads.data()) < b->threads.size() * sizeof(Thread) ||
           address - reinterpret_cast<uintptr_t>(b) < sizeof(BlockState);
}

bool runtime_memory(uintptr_t address) {
    return in_any(argument_memory, address) || in_any(thread_variables, address);
}

BlockState* owner_of_shared(uintptr_t address) {
    BlockState* own = current_block();
    auto holds = [address](const BlockState* b) {
        return address - reinterpret_cast<uintptr_t>(b->arena) < kStaticArena + kDynamicArena + kPage;
    };
    if (holds(own)) return own;
    if (!own->cluster_state) return nullptr;
    for (Block* peer : own->cluster_state->peers) {
        if (holds(static_cast<BlockState*>(peer))) return static_cast<BlockState*>(peer);
    }
    return nullptr;
}

bool mapped(uintptr_t address) {
    unsigned char resident;
    return !mincore(reinterpret_cast<void*>(address & ~(kPage - 1)), 1, &resident);
}
}  // namespace

// Check mode sees the access itself; fast mode can only look at what is handed over.
void check_pointer(const LaunchConfig& config, unsigned number, const volatile void* argument) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(argument);
    EmuRegion region;
    if (options.check || !address || emu_find_region(address, &region) || emu_find_freed(address, &region)) return;
    if (is_pinned(address) || in_image(address) || !mapped(address)) return;
    RawFinding f;
    f.kind = "host_pointer";
    f.message = text("Argument %u of kernel %s points to host memory, which a GPU cannot see; this is the pointer of a "
                     "CPU tensor or of a variable of the host.", number, config.kernel);
    f.kernel = config.kernel;
    f.file = config.file;
    f.line = config.line;
    keep(f);
    throw std::runtime_error("CUDA emulator: " + sentence(f));
}

namespace {
void synchronise(const Access& access);

void access_elsewhere(const Access& access) {
    std::string nearest;
    if (beside_variables(access.address, &nearest)) {
        stop("out_of_bounds", access, text("The kernel %s %zu bytes among the module's variables, behind %s and in none of "
                                           "them.", verb(access), access.bytes, nearest.c_str()));
    }
    if (in_image(access.address) || is_pinned(access.address)) {
        if (access.write) forbid_repeat();
        return synchronise(access);
    }
    find_thread_variables();   // this thread's first, or it has more since
    if (runtime_memory(access.address)) return;
    EmuRegion region;
    if (emu_find_freed(access.address, &region)) {
        stop("out_of_bounds", access, text("The kernel %s %s of %zu bytes after it was freed.", verb(access),
                                           called(region).c_str(), region.bytes));
    }
    if (access.address < 65536) {
        stop("out_of_bounds", access, text("The kernel %s through a null pointer (offset %zu).", verb(access),
                                           size_t(access.address)));
    }
    if (!mapped(access.address)) {
        stop("out_of_bounds", access, text("The kernel %s address 0x%zx, which belongs to no allocation.", verb(access),
                                           size_t(access.address)));
    }
    stop("host_pointer", access, text("The kernel %s host memory, which a GPU cannot see; this is the pointer of a CPU "
                                      "tensor or of a variable of the host.", verb(access)));
}

// The order in memory that the access itself makes or relies on.
void synchronise(const Access& access) {
    const bool in_block = access.kind == Kind::BlockAtomic;
    if (is_atomic(access.kind) || (is_volatile(access.kind) && !access.write)) acquire(access.address, in_block);
    if (access.write && access.kind != Kind::Plain) release(access.address, in_block);
    if (access.write) current->fenced = false;
}

// The writes of a thread that has executed a fence publish: "__threadfence(); flag = 1;".
Kind kind_of_write(Kind kind) {
    if (kind == Kind::Plain && current->fenced) return Kind::Published;
    if (kind == Kind::Volatile && (current->fenced || fenced_before())) return Kind::Flag;
    return kind;
}
}  // namespace

void require_running(const BlockState* owner, const char* does, int line, uintptr_t pc) {
    if (owner->alive) return;
    note(owner->launch, "data_race",
         text("The kernel %s shared memory of a block of its cluster that has ended. Its memory goes with it: let all "
              "blocks meet, as cluster.sync() does, before one that others still need returns.", does),
         current, line, pc);
}

void checked_access(const Access& seen) {
    Thread* self = current;
    if (!self || !options.check || seen.address - reinterpret_cast<uintptr_t>(self->stack) < kStackBytes) return;
    if (built_in(seen.address)) return;   // the most frequent
    // A copy's write is announced before its read, and has not happened when the read comes.
    if (seen.write) flush_pending_write();
    Access access = seen;
    if (seen.write) access.kind = kind_of_write(seen.kind);
    if (BlockState* owner = owner_of_shared(access.address)) {
        require_running(owner, verb(access), access.line, access.pc);
        access_shared(access, owner);
    } else if (CachedRegion* known = known_region(access.address)) {
        access_global(access, *known);
    } else if (runtime_memory(access.address)) {   // arguments: the most frequent of the rest
        return;
    } else if (CachedRegion* found = find_region(access.address)) {
        access_global(access, *found);
    } else {
        return access_elsewhere(access);
    }
    synchronise(access);
}

void check_begin_launch(Launch* launch) {
    find_arguments(launch->context);
    begin_ordering();
    begin_repeat();
    begin_races(launch);
    cache.clear();
    cache_generation = 0;
    begin_counts(launch);
}

namespace {
void atomic_access(const volatile void* address, size_t bytes, int line, Scope scope, bool write, bool exchange,
                   bool compares = false) {
    if (!current) return;
    const auto at = reinterpret_cast<uintptr_t>(address);
    if (at % bytes) {
        fail("misaligned_access", line, "An atomic of %zu bytes has an address that is %zu bytes off.", bytes, at % bytes);
    }
    // Polling the same word again: let those run whom it waits for, and only then look at the word.
    const bool polls = current->last_atomic == at;
    current->last_atomic = at;
    if (polls) give_way();
    const Kind kind = scope == Scope::Block ? Kind::BlockAtomic : Kind::Atomic;
    checked_access(Access{at, bytes, write, kind, 0, line, exchange, compares});
}
}  // namespace

void before_atomic(const volatile void* address, size_t bytes, int line, Scope scope) {
    atomic_access(address, bytes, line, scope, true, false);
}

void before_atomic_load(const volatile void* address, size_t bytes, int line, Scope scope) {
    atomic_access(address, bytes, line, scope, false, false);
}

void before_exchange(const volatile void* address, size_t bytes, int line, Scope scope) {
    atomic_access(address, bytes, line, scope, true, true);
}

void before_compare(const volatile void* address, size_t bytes, int line, Scope scope) {
    atomic_access(address, bytes, line, scope, true, false, true);
}

Kind volatile_kind(uintptr_t address, bool write, uintptr_t site) {
    const auto begin = std::begin(current->recent), end = std::end(current->recent);
    if (write) {
        linger(site);
        for (auto& read : current->recent) read = {};
        return Kind::Volatile;
    }
    const auto same = std::find_if(begin, end, [address](const auto& read) { return read.address == address; });
    if (same != end) {   // a poll may begin with a read of its own, before the loop
        remember_poll(address, site);
        remember_poll(address, same->site);
    }
    std::copy_backward(begin, end - 1, end);
    *begin = {address, site};
    const bool polls = current->last_volatile == address;
    current->last_volatile = address;
    return polls ? Kind::Flag : Kind::Volatile;
}

void before_volatile(const volatile void* address, size_t bytes, bool write, int line) {
    if (!current) return;
    const auto at = reinterpret_cast<uintptr_t>(address);
    if (!write) give_way();
    checked_access(Access{at, bytes, write, volatile_kind(at, write, kLineSite | uintptr_t(line)), 0, line});
}

void before_strong(const volatile void* address, size_t bytes, bool write, int line) {
    if (!write) give_way();
    checked_access(Access{reinterpret_cast<uintptr_t>(address), bytes, write, Kind::Flag, 0, line});
}

void access_hint(const void* address, size_t bytes, bool write, int line) {
    checked_access(Access{reinterpret_cast<uintptr_t>(address), bytes, write, Kind::Plain, 0, line});
}

void access_range(const void* address, size_t bytes, bool write, int line) {
    if (current && bytes) access_hint(address, bytes, write, line);
}

void narrow_atomics(bool narrow) {
    if (current) current->narrow_atomics = narrow;
}

void fence(bool of_device) {
    if (!current) return;
    current->fenced = true;
    if (options.check && of_device) remember_fence();
    give_way();
}
}  // namespace emu
