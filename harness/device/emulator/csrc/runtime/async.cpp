// Asynchronous copies and the barriers in shared memory that they signal. A copy happens when somebody waits
// for it: a kernel that reads too early finds what was there before.
#include <algorithm>
#include <cstring>

#include "check.h"

namespace emu {
namespace {
void perform(const AsyncCopy& copy) {
    memcpy(copy.to, copy.from, copy.bytes);
    memset(static_cast<char*>(copy.to) + copy.bytes, 0, copy.zeros);
}

AsyncQueue& queue() { return current_block()->async[current->rank]; }

// What a copy reads or writes, sector by sector, as it goes through memory.
void accessed(const void* address, size_t bytes, bool write, int line) {
    constexpr uintptr_t kSector = 32;
    auto at = reinterpret_cast<uintptr_t>(address);
    for (const uintptr_t end = at + bytes; at < end;) {
        const uintptr_t next = std::min(end, (at / kSector + 1) * kSector);
        access_hint(reinterpret_cast<const void*>(at), next - at, write, line);
        at = next;
    }
}

void check_copy(void* to, const void* from, size_t bytes, size_t zeros, int line) {
    const size_t unit = (bytes + zeros) % 16 == 0 ? 16 : bytes + zeros;
    const uintptr_t both = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
    if (unit && unit <= 16 && both % unit) {
        fail("misaligned_access", line, "An asynchronous copy of %zu bytes needs addresses that are multiples of %zu.",
             bytes + zeros, unit);
    }
    accessed(from, bytes, false, line);
    accessed(to, bytes + zeros, true, line);
}

BlockState* owner(const void* shared, int line) {
    const uint32_t window = shared_window(shared);
    if (!window) fail("out_of_bounds", line, "An mbarrier must lie in shared memory.");
    BlockState* own = current_block();
    return own->peers ? static_cast<BlockState*>(own->peers[(window >> 24) - 1]) : own;
}

Mbarrier& find(void* address, int line) {
    auto& all = owner(address, line)->mbarriers;
    const auto it = all.find(address);
    if (it == all.end()) fail("uninitialised_read", line, "An mbarrier is used before it is initialised.");
    return it->second;
}

void advance(Mbarrier& barrier, const void* address) {
    if (barrier.pending || barrier.bytes) return;
    if (options.check) barrier.releases[barrier.phase % 2] = releases_so_far(reinterpret_cast<uintptr_t>(address));
    barrier.phase++;
    barrier.pending = barrier.expected;
}

void deliver(Mbarrier& barrier, const void* address) {
    std::vector<AsyncCopy> copies;
    copies.swap(barrier.copies);
    for (const AsyncCopy& copy : copies) {
        perform(copy);
        barrier.bytes -= int64_t(copy.bytes);
    }
    if (!copies.empty()) advance(barrier, address);
}

// Whether a phase is over; then the thread acquires what was released until its end, and nothing of the next one.
bool acquired(Mbarrier& barrier, const void* address, uint64_t phase, bool over) {
    if (!over) give_way();
    else if (options.check) acquire(reinterpret_cast<uintptr_t>(address), false, barrier.releases[phase % 2]);
    return over;
}
}  // namespace

void async_copy(void* to, const void* from, size_t bytes, size_t zeros, int line) {
    check_copy(to, from, bytes, zeros, line);
    queue().open.push_back({to, from, bytes, zeros});
}

void async_commit() {
    AsyncQueue& q = queue();
    q.groups.push_back(std::move(q.open));
    q.open.clear();
}

void async_wait(size_t groups_left) {
    AsyncQueue& q = queue();
    while (q.groups.size() > groups_left) {
        for (const AsyncCopy& copy : q.groups.front()) perform(copy);
        q.groups.pop_front();
    }
}

void async_wait_all() {
    async_commit();
    async_wait(0);
}

void mbarrier_init(void* address, uint32_t count, int line) {
    access_hint(address, 8, true, line);
    if (!count) fail("divergent_barrier", line, "An mbarrier is initialised for no arrivals.");
    owner(address, line)->mbarriers[address] = Mbarrier{count, count, 0, 0, {}};
    const uint64_t mark = 1;   // the object is opaque, but it is no longer unset
    memcpy(address, &mark, sizeof mark);
}

void mbarrier_invalidate(void* address, int line) { owner(address, line)->mbarriers.erase(address); }

uint64_t mbarrier_arrive(void* address, uint32_t count, int64_t bytes, int line, bool relaxed) {
    Mbarrier& barrier = find(address, line);
    if (options.check) {
        const BlockState* holder = owner(address, line);
        require_running(holder, "arrives at an mbarrier in", line);
        const bool of_a_peer = holder != current_block();
        if (of_a_peer && !relaxed) remember_fence();   // .release.cluster: for the whole cluster
        release(reinterpret_cast<uintptr_t>(address));
    }
    if (count > barrier.pending) {
        fail("divergent_barrier", line, "More threads arrive at an mbarrier than the %u it was initialised for.",
             barrier.expected);
    }
    const uint64_t phase = barrier.phase;
    barrier.bytes += bytes;
    barrier.pending -= count;
    advance(barrier, address);
    return phase;
}

void mbarrier_expect(void* address, int64_t bytes, int line) { find(address, line).bytes += bytes; }

bool mbarrier_passed(void* address, uint64_t phase, int line) {
    Mbarrier& barrier = find(address, line);
    deliver(barrier, address);
    return acquired(barrier, address, phase, barrier.phase != phase);
}

// True when the phase with this parity has completed, as try_wait.parity defines it.
bool mbarrier_parity_passed(void* address, uint32_t parity, int line) {
    Mbarrier& barrier = find(address, line);
    deliver(barrier, address);
    return acquired(barrier, address, parity, (barrier.phase & 1) != (parity & 1));
}

void bulk_copy_to_shared(void* to, const void* from, size_t bytes, void* barrier, int line) {
    if (bytes % 16) fail("misaligned_access", line, "A bulk copy moves %zu bytes, which is no multiple of 16.", bytes);
    check_copy(to, from, bytes, 0, line);
    if (options.check) release(reinterpret_cast<uintptr_t>(barrier));   // whoever waits for it sees the copy
    find(barrier, line).copies.push_back({to, from, bytes, 0});
}

void bulk_copy_to_global(void* to, const void* from, size_t bytes, int line) {
    if (bytes % 16) fail("misaligned_access", line, "A bulk copy moves %zu bytes, which is no multiple of 16.", bytes);
    async_copy(to, from, bytes, 0, line);
}

void flush_async(BlockState* b) {
    for (auto& [rank, q] : b->async) {
        for (const auto& group : q.groups) {
            for (const AsyncCopy& copy : group) perform(copy);
        }
        for (const AsyncCopy& copy : q.open) perform(copy);
    }
    b->async.clear();
    b->mbarriers.clear();
}
}  // namespace emu
