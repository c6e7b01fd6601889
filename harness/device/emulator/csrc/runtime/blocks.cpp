// The life of a block: where its shared memory lies, how it begins and what is checked at its end.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "check.h"
#include "state.h"

namespace emu {
namespace {
std::mutex pool_lock;
std::vector<BlockState*> pool;          // kept between launches: stacks and shared memory are costly to map
std::atomic<uint32_t> next_serial{1}, next_epoch{1};

char* map_arena(size_t bytes) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* memory = mmap(nullptr, bytes + kPage, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(static_cast<char*>(memory) + bytes, kPage, PROT_NONE);
    return static_cast<char*>(memory);
}

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

uint3 place(const Launch* launch, const BlockState* b, uint64_t number) {
    const dim3 g = launch->config.grid, c = launch->config.cluster;
    const unsigned size = c.x * c.y * c.z;
    if (size == 1) {
        return uint3{unsigned(number % g.x), unsigned(number / g.x % g.y), unsigned(number / g.x / g.y)};
    }
    const uint64_t unit = number / size;
    const unsigned r = b->cluster_rank;
    const dim3 in(g.x / c.x, g.y / c.y, g.z / c.z);
    return uint3{unsigned(unit % in.x) * c.x + r % c.x, unsigned(unit / in.x % in.y) * c.y + r / c.x % c.y,
                 unsigned(unit / in.x / in.y) * c.z + r / c.x / c.y};
}

void reset_threads(BlockState* b, const Launch* launch) {
    const dim3 d = launch->config.block;
    b->threads.assign(launch->threads, Thread{});
    unsigned rank = 0;
    for (unsigned z = 0; z < d.z; z++)
        for (unsigned y = 0; y < d.y; y++)
            for (unsigned x = 0; x < d.x; x++, rank++) {
                Thread& thread = b->threads[rank];
                thread.index = uint3{x, y, z};
                thread.rank = rank;
                thread.warp = rank / 32;
                thread.lane = rank % 32;
                thread.block = b;
            }
}

void shuffle_start(BlockState* b) {
    if (options.order != Order::Random) return;
    const unsigned n = unsigned(b->threads.size());
    b->start_order.resize(n);
    for (unsigned i = 0; i < n; i++) b->start_order[i] = uint16_t(i);
    for (unsigned i = n; i > 1; i--) std::swap(b->start_order[i - 1], b->start_order[next_random(b->worker->random) % i]);
}

void reset_shared(BlockState* b) {
    if (!b->arena) {
        b->arena = map_arena(kStaticArena + kDynamicArena);
        b->dynamic_arena = b->arena + kStaticArena;
    }
    memset(b->arena, fill, b->arena_used);
    b->arena_used = 0;
    b->slots.clear();
    // 128 bytes of alignment is what bulk copies ask for; the rest up to the guard page is checked at the end.
    const size_t room = round_up(b->dynamic_bytes, 128);
    b->dynamic = b->dynamic_arena + kDynamicArena - room;
    memset(b->dynamic - kRedZone, fill, kRedZone + room);
}

long first_change(const char* from, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (static_cast<unsigned char>(from[i]) != fill) return long(i);
    }
    return -1;
}
}  // namespace

uint32_t new_epoch() { return next_epoch++; }
uint32_t upcoming_serial() { return next_serial; }

BlockState* take_block() {
    std::lock_guard<std::mutex> guard(pool_lock);
    if (pool.empty()) return new BlockState{};
    BlockState* b = pool.back();
    pool.pop_back();
    return b;
}

void give_block(BlockState* b) {
    std::lock_guard<std::mutex> guard(pool_lock);
    pool.push_back(b);
}

void begin_block(BlockState* b, Launch* launch, uint64_t number) {
    b->launch = launch;
    b->size = launch->config.block;
    b->grid = launch->config.grid;
    b->cluster = launch->config.cluster;
    b->number = number;
    b->index = place(launch, b, number);
    reset_threads(b, launch);
    shuffle_start(b);
    b->started = 0;
    b->alive = launch->threads;
    b->ready.clear();
    b->head = 0;
    b->retiring = nullptr;
    b->arrived = b->at_grid = b->fell_through = b->polls = 0;
    b->one_waits = false;
    b->barrier_line = 0;
    b->waits_for_grid = b->gave_way = b->waited_for_launch = false;
    b->named.clear();
    b->async.clear();
    b->mbarriers.clear();
    b->dynamic_bytes = launch->config.shared_bytes;
    reset_shared(b);
    b->serial = next_serial++;
    b->epoch = new_epoch();
    if (options.check) check_begin_block(b);
}

// Writes behind the end that stayed inside the arena are seen here, in either mode.
void finish_block(BlockState* b) {
    flush_async(b);
    if (options.check) count_settle(b);
    const char* end = b->dynamic + b->dynamic_bytes;
    long at = first_change(end, size_t(b->dynamic_arena + kDynamicArena - end));
    if (at >= 0) {
        note_damage(b->launch, b,
                    text("A thread wrote behind the end of the block's dynamic shared memory of %zu bytes (first "
                         "changed byte: %zu).", b->dynamic_bytes, b->dynamic_bytes + size_t(at)));
    }
    if (first_change(b->dynamic - kRedZone, kRedZone) >= 0) {
        note_damage(b->launch, b, "A thread wrote before the start of the block's dynamic shared memory.");
    }
    for (const Slot& slot : b->slots) {
        at = first_change(slot.data + slot.bytes, kRedZone);
        if (at < 0) continue;
        note_damage(b->launch, b,
                    text("A thread wrote behind the end of a __shared__ variable of %zu bytes (first changed byte: "
                         "%zu).", slot.bytes, slot.bytes + size_t(at)));
    }
}

// Addresses in the shared window, as PTX has them: an offset in the block's arena, and above it the rank of
// the block in its cluster plus one. 0 is no address.
uint32_t shared_window(const void* pointer) {
    const BlockState* own = current_block();
    const unsigned count = own->peers ? own->cluster.x * own->cluster.y * own->cluster.z : 1;
    for (unsigned rank = 0; rank < count; rank++) {
        const BlockState* b = own->peers ? static_cast<BlockState*>(own->peers[rank]) : own;
        const size_t offset = size_t(static_cast<const char*>(pointer) - b->arena);
        if (offset <= kStaticArena + kDynamicArena) return uint32_t(offset) | (rank + 1) << 24;
    }
    return 0;
}

void* from_shared_window(uint32_t address) {
    BlockState* own = current_block();
    const unsigned rank = address >> 24;
    const unsigned count = own->peers ? own->cluster.x * own->cluster.y * own->cluster.z : 1;
    if (!rank || rank > count) fail("out_of_bounds", 0, "0x%x is no address in shared memory.", address);
    const BlockState* b = own->peers ? static_cast<BlockState*>(own->peers[rank - 1]) : own;
    return b->arena + (address & 0xFFFFFF);
}

bool is_cooperative() { return current && current->block->launch->config.cooperative; }

namespace {
void* variable_of(BlockState* b, const void* key, size_t bytes, size_t align) {
    size_t total = bytes;
    for (const Slot& slot : b->slots) {
        if (slot.key == key) return slot.data;
        total += slot.bytes;
    }
    if (total > kStaticSharedLimit) {
        fail("bad_launch", 0, "The kernel's static __shared__ variables need %zu bytes and the limit is %zu; use "
             "dynamic shared memory.", total, kStaticSharedLimit);
    }
    const size_t unit = std::max<size_t>(align, 16);
    const size_t offset = round_up(b->arena_used + kRedZone, unit);
    char* data = b->arena + offset;
    memset(data, fill, bytes + kRedZone);
    b->arena_used = offset + bytes + kRedZone;
    b->slots.push_back({key, data, bytes});
    return data;
}
}  // namespace

void* shared_variable(const void* key, size_t bytes, size_t align) {
    if (!current) fail("host_code_in_kernel", 0, "A __shared__ variable is used outside of a kernel.");
    return variable_of(current_block(), key, bytes, align);
}

// Blocks may meet their variables in different orders, so that a variable is found by its key.
void* map_to_peer(void* shared, unsigned rank, int line) {
    BlockState* own = current_block();
    const unsigned count = own->peers ? own->cluster.x * own->cluster.y * own->cluster.z : 1;
    auto* pointer = static_cast<char*>(shared);
    const size_t offset = size_t(pointer - own->arena);
    if (rank >= count || offset > kStaticArena + kDynamicArena) {
        fail("out_of_bounds", line, "The kernel maps shared memory of block %u of a cluster of %u blocks.", rank, count);
    }
    BlockState* peer = own->peers ? static_cast<BlockState*>(own->peers[rank]) : own;
    for (const Slot& slot : own->slots) {
        if (pointer < slot.data || pointer >= slot.data + slot.bytes) continue;
        return static_cast<char*>(variable_of(peer, slot.key, slot.bytes, 16)) + (pointer - slot.data);
    }
    return peer->arena + offset;
}
}  // namespace emu
