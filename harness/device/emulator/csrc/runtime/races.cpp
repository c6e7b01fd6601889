// Data races: two threads touch the same bytes, one of them writes, and nothing orders them.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "check.h"
#include "streams.h"

namespace emu {
namespace {
// Memory for a word's Cell and, in its second half, for its OtherTouches.
struct Mapping {
    char* memory;
    size_t bytes;
    Cells cells() const {
        return {reinterpret_cast<Cell*>(memory), reinterpret_cast<OtherTouches*>(memory + bytes / 2)};
    }
};
static_assert(sizeof(Cell) == sizeof(OtherTouches));
struct GlobalShadow {
    Mapping mapping{};
    uint64_t allocation = 0;     // the number of the one whose memory is followed
    uint32_t since_serial = 0;
};
std::unordered_map<uintptr_t, GlobalShadow> global_shadows;
// Mappings of ended launches, kept for later ones: a fresh page costs more than all that is done with it. What they
// still hold names blocks before `since_serial`.
std::vector<Mapping> spare;
constexpr size_t kMostSpareBytes = size_t(256) << 20;

// A write that conflicts is harmless when it changes nothing, which is known only after it has happened.
struct PendingWrite {
    bool active = false;
    uintptr_t address;
    std::string old_value;
    const Thread* thread;
    std::string message;
    uintptr_t pc;
    OtherAccess other;
    int line;
} pending;

// Places in the code whose race has been reported: a loop meets the same place in each iteration.
std::unordered_set<uint64_t> reported;
std::unordered_set<uint64_t> suspected;   // the same of races that are none where a word is polled

std::unordered_set<uint32_t> compared_sites;   // of plain reads whose thread then compares that word and swaps

uint64_t place(const Access& access) { return access.line ? uint64_t(access.line) : uint64_t(access.pc); }

Mapping map_cells(size_t count) {
    const size_t bytes = 2 * count * sizeof(Cell);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return {static_cast<char*>(memory), bytes};
}

// The smallest spare mapping that is large enough, or a new one.
Mapping take_cells(size_t count) {
    auto best = spare.end();
    for (auto one = spare.begin(); one != spare.end(); ++one) {
        if (one->bytes >= 2 * count * sizeof(Cell) && (best == spare.end() || one->bytes < best->bytes)) best = one;
    }
    if (best == spare.end()) return map_cells(count);
    const Mapping found = *best;
    spare.erase(best);
    return found;
}

bool in_own_cluster(uint32_t serial) {
    const BlockState* b = current_block();
    if (!b->cluster_state) return false;
    for (const Block* peer : b->cluster_state->peers) {
        if (static_cast<const BlockState*>(peer)->serial == serial) return true;
    }
    return false;
}

bool communicates(Kind kind) { return kind != Kind::Plain && kind != Kind::Volatile; }

// Made for threads that run at the same time: atomics that reach both, flags set behind a fence and polled words. One
// side may be a plain volatile access, which a poll begins with. Two of them are data that nothing orders.
bool harmless_pair(const Touch& before, const Touch& now) {
    if (before.block != now.block && (before.kind == Kind::BlockAtomic || now.kind == Kind::BlockAtomic)) return false;
    if (is_atomic(before.kind) && is_atomic(now.kind)) return true;
    if (is_volatile(before.kind) && communicates(now.kind)) return true;
    return is_volatile(now.kind) && communicates(before.kind);
}

enum class Conflict : uint8_t { None, Unordered, Unfenced, BetweenLaunches };

Conflict conflict(const Touch& before, const Touch& now, uint32_t oldest, bool was_write, bool shared) {
    const BlockState* b = current_block();
    const Launch* launch = b->launch;
    if (before.block < oldest || !(before.bytes & now.bytes)) return Conflict::None;
    if (harmless_pair(before, now)) return Conflict::None;
    if (before.block < launch->first_serial) {
        if (is_volatile(before.kind) && is_volatile(now.kind)) return Conflict::None;
        return unordered_work(before.block) ? Conflict::BetweenLaunches : Conflict::None;
    }
    if (before.block == now.block) {
        if (ordered_in_block(before, now.epoch, now.thread, now.warp_epoch)) return Conflict::None;
    } else if (in_own_cluster(before.block)) {
        if (before.epoch < b->cluster_state->epoch) return Conflict::None;
    } else if (shared) {
        return Conflict::None;   // left behind by a block that used this memory earlier
    }
    if (before.block != now.block && before.epoch < launch->grid_epoch) return Conflict::None;
    const Path path = ordered_by_release(before, was_write);
    if (path == Path::Complete) return Conflict::None;
    return path == Path::Unfenced ? Conflict::Unfenced : Conflict::Unordered;
}

const char* const kBlockAtomic = " An atomic of block scope, as those named _block, reaches its own block only.";
const char* const kVolatile = " volatile makes the compiler read and write each time, and orders nothing: between threads "
                              "it takes a barrier, __syncwarp() within a warp, or a fence before the flag.";

std::string describe_launches(const char* what, const Touch& before, const char* space, uintptr_t offset) {
    const Work* work = unordered_work(before.block);
    const char* why = work == current->block->launch->predecessor.get()
                          ? "this launch may begin before that one has ended (programmatic dependent launch), and this "
                            "block has not executed griddepcontrol.wait"
                          : "this launch is in another stream, which nothing makes wait for that one";
    return text("Data race in %s memory at byte %zu: this thread %s what kernel %s, launched at line %d, has touched, and "
                "%s.", space, size_t(offset), what, work->what.c_str(), work->line, why);
}

std::string describe(const char* what, const Touch& before, bool wrote, Conflict why, const char* space,
                     uintptr_t offset) {
    if (why == Conflict::BetweenLaunches) return describe_launches(what, before, space, offset);
    const BlockState* b = current_block();
    const char* block = before.block == b->serial ? "the same block" : "another block";
    const char* between = before.block == b->serial ? "no barrier stands between them"
                          : why == Conflict::Unfenced
                              ? "though a flag was set after it, no __threadfence() stands between the write and the flag"
                              : "nothing orders the two blocks";
    std::string message = text("Data race in %s memory at byte %zu: this thread %s what thread %u of %s ", space,
                               size_t(offset), what, before.thread, block);
    message += text("has just %s, and %s", wrote ? "written" : "read", between);
    // In a row of volatile accesses and between blocks other things are missing.
    const bool is_barrier_missing = before.block == b->serial && !is_volatile(before.kind);
    message += is_barrier_missing ? "; a __syncthreads() between the two would order them." : ".";
    if (before.block != b->serial && before.kind == Kind::BlockAtomic) return message + kBlockAtomic;
    return is_volatile(before.kind) ? message + kVolatile : message;
}

void mark(uint64_t at, const OtherAccess& other) {
    (other.unless_polled || other.unless_compared ? suspected : reported).insert(at);
}

void report(const Access& access, const std::string& message, const OtherAccess& other) {
    mark(place(access), other);
    note_pair(current->block->launch, "data_race", message, current, access.line, access.pc, access.write, other);
}

OtherAccess access_of(const Touch& touch, bool wrote) {
    if (touch.site & 0x80000000u) return {0, int(touch.site & 0x7FFFFFFFu), wrote};
    const Work* work = touch.block < current->block->launch->first_serial ? unordered_work(touch.block) : nullptr;
    return {(work ? work->code_begin : current->block->launch->code_begin) + touch.site, 0, wrote};
}

// In global memory a word may be flag and data in one, which takes no fence.
bool is_suspect(const Touch& before, const Touch& now, bool shared) {
    return !shared && is_volatile(before.kind) && is_volatile(now.kind);
}

// A plain read of what the other side changes by an atomic may be the first guess of a loop around atomicCAS.
bool may_be_guess(const Touch& read, const Touch& atomic) {
    return read.kind == Kind::Plain && is_atomic(atomic.kind) &&
           (atomic.kind == Kind::Atomic || atomic.block == read.block);
}

OtherAccess guess(OtherAccess other, const Touch& read) {
    other.unless_compared = uint64_t(read.site) + 1;
    return other;
}

OtherAccess suspect(OtherAccess other, const Access& access) {
    other.unless_polled = access.address & ~uintptr_t(3);
    if (access.write && other.write) return other;   // no site reads
    const uintptr_t own = access.line ? kLineSite | uintptr_t(access.line) : access.pc;
    const uintptr_t others = other.line ? kLineSite | uintptr_t(other.line) : other.at;
    other.polled_site = access.write ? others : own;
    return other;
}

void hold(const Access& access, const std::string& message, const OtherAccess& other) {
    pending.active = true;
    pending.address = access.address;
    pending.old_value.assign(reinterpret_cast<const char*>(access.address), access.bytes);
    pending.thread = current;
    pending.message = message;
    pending.pc = access.pc;
    pending.other = other;
    pending.line = access.line;
}

// What is known of one word.
struct TouchedWord {
    Cell& cell;
    OtherTouches& others;
    const Touch* other_write() const { return cell.write.bytes & kHasOther ? &others.write : nullptr; }
    const Touch* other_read() const { return cell.read.bytes & kHasOther ? &others.read : nullptr; }
};

TouchedWord word_of(const Cells& cells, uintptr_t number) { return {cells.first[number], cells.others[number]}; }

void check_read(const Access& access, const TouchedWord& word, const Touch& now, uint32_t oldest, const char* space,
                uintptr_t offset) {
    if (reported.contains(place(access))) return;
    for (const Touch* before : {&std::as_const(word.cell.write), word.other_write()}) {
        if (!before) continue;
        const bool shared = space[0] == 's', unsure = is_suspect(*before, now, shared);
        const bool guessed = may_be_guess(now, *before);
        if ((unsure || guessed) && suspected.contains(place(access))) continue;
        const Conflict why = conflict(*before, now, oldest, true, shared);
        if (why == Conflict::None) continue;
        OtherAccess other = access_of(*before, true);
        if (guessed && why != Conflict::BetweenLaunches) other = guess(other, now);
        return report(access, describe("reads", *before, true, why, space, offset),
                      unsure ? suspect(other, access) : other);
    }
}

void check_write(const Access& access, const TouchedWord& word, const Touch& now, uint32_t oldest, const char* space,
                 uintptr_t offset) {
    if (pending.active || reported.contains(place(access))) return;
    const Touch *write = &word.cell.write, *read = &word.cell.read;
    for (const Touch* before : {write, word.other_write(), read, word.other_read()}) {
        if (!before) continue;
        const bool was_write = before == write || before == word.other_write();
        const bool shared = space[0] == 's', unsure = is_suspect(*before, now, shared);
        const bool guessed = !was_write && may_be_guess(*before, now);
        if ((unsure || guessed) && suspected.contains(place(access))) continue;
        const Conflict why = conflict(*before, now, oldest, was_write, shared);
        if (why == Conflict::None) continue;
        const std::string message = describe("writes", *before, was_write, why, space, offset);
        OtherAccess other = access_of(*before, was_write);
        if (unsure) other = suspect(other, access);
        if (guessed && why != Conflict::BetweenLaunches) other = guess(other, *before);
        if (is_atomic(access.kind)) report(access, message, other);
        else hold(access, message, other);
        return;
    }
}

constexpr uint8_t kWholeWord = 15;

bool same_moment(const Touch& a, const Touch& b) {
    return a.block == b.block && a.thread == b.thread && a.epoch == b.epoch && a.warp_epoch == b.warp_epoch &&
           a.tick == b.tick && a.kind == b.kind;
}

void remember_write(const TouchedWord& word, const Touch& now) {
    const Touch before = word.cell.write;
    word.cell.write = now;
    if (now.bytes == kWholeWord) return;   // no other is left
    if (same_moment(before, now)) {
        word.cell.write.bytes |= before.bytes;
    } else if (before.bytes & kWholeWord & ~now.bytes) {
        word.others.write = before;
        word.cell.write.bytes |= kHasOther;
    } else {
        word.cell.write.bytes |= before.bytes & kHasOther;
    }
}

// Of a read before `oldest` nothing needs to be known.
void remember(const Access& access, const TouchedWord& word, const Touch& now, uint32_t oldest) {
    if (access.write) return remember_write(word, now);
    const Touch before = word.cell.read;
    word.cell.read = now;
    if (before.block < oldest) return;
    if (before.thread == now.thread && before.block == now.block) {
        word.cell.read.bytes |= before.bytes & kHasOther;
    } else {
        word.others.read = before;
        word.cell.read.bytes |= kHasOther;
    }
}
}  // namespace

GlobalCells global_cells(const EmuRegion& region) {
    if (region.bytes > kLargestFollowed) return {nullptr, 0};
    GlobalShadow& shadow = global_shadows[region.data];
    if (shadow.allocation != region.number) {
        if (shadow.mapping.memory) spare.push_back(shadow.mapping);
        shadow = {take_cells(region.bytes / 4 + 2), region.number, current->block->launch->first_serial};
    }
    return {shadow.mapping.cells(), shadow.since_serial};
}

Toucher touched_by(const Works& launches, const EmuRegion& region, uintptr_t address, size_t bytes, bool reads) {
    const auto own = global_shadows.find(region.data);
    if (launches.empty() || own == global_shadows.end() || own->second.allocation != region.number) return {};
    const uint32_t oldest = std::max(launches.front()->first_serial, own->second.since_serial);
    const uintptr_t first = address - region.data, end = first + bytes;
    const Cells cells = own->second.mapping.cells();
    Toucher reader;
    for (uintptr_t word = first / 4; word * 4 < end; word++) {
        const uintptr_t from = std::max(word * 4, first), to = std::min(word * 4 + 4, end);
        const auto mask = uint8_t(((1u << (to - from)) - 1) << from % 4);
        auto whose = [&](const Touch* touch) {
            return touch && touch->block >= oldest && touch->bytes & mask ? work_of(launches, touch->block) : nullptr;
        };
        const TouchedWord known = word_of(cells, word);
        const Work* writer = whose(&known.cell.write);
        if (!writer) writer = whose(known.other_write());
        if (writer) return {writer, true};
        if (!reads || reader.work) continue;
        reader.work = whose(&known.cell.read);
        if (!reader.work) reader.work = whose(known.other_read());
    }
    return reader;
}

namespace {
bool is_live(uintptr_t data, uint64_t allocation) {
    EmuRegion region;
    if (is_variable(allocation)) return true;
    return emu_find_region(data, &region) && region.number == allocation;
}

// All of them, or those of memory that has been freed.
void forget_global_cells(bool all) {
    size_t bytes = 0;
    for (auto own = global_shadows.begin(); own != global_shadows.end();) {
        const bool keep = !all && is_live(own->first, own->second.allocation);
        if (!keep && own->second.mapping.memory) spare.push_back(own->second.mapping);
        own = keep ? std::next(own) : global_shadows.erase(own);
    }
    for (const Mapping& mapping : spare) bytes += mapping.bytes;
    for (; bytes > kMostSpareBytes; spare.pop_back()) {
        munmap(spare.back().memory, spare.back().bytes);
        bytes -= spare.back().bytes;
    }
}
}  // namespace

void begin_races(Launch* launch) {
    static uint64_t generation = 0;   // of the memory, when its cells were last looked through
    reported.clear();
    suspected.clear();
    compared_sites.clear();
    const bool all = !keeps_touches(launch);
    if (all || generation != emu_memory_generation()) forget_global_cells(all);
    generation = emu_memory_generation();
    order_launch(launch);
}

// Most accesses find a word last written by this thread, before this block's last barrier, or in no block of
// this launch: nothing to look at.
namespace {
bool settled(const Touch* before, const Touch& now, uint32_t oldest) {
    if (!before || before->block < oldest) return true;
    return before->block == now.block && (before->epoch < now.epoch || before->thread == now.thread);
}
}  // namespace

void follow(const Access& access, const Cells& cells, uint32_t oldest, const void* base, uintptr_t start,
            const char* space) {
    const uintptr_t first = access.address - reinterpret_cast<uintptr_t>(base), offset = access.address - start;
    for (uintptr_t number = first / 4; number <= (first + access.bytes - 1) / 4; number++) {
        const uintptr_t from = std::max(number * 4, first), to = std::min(number * 4 + 4, first + access.bytes);
        const Touch now = touch_now(access, uint8_t(((1u << (to - from)) - 1) << from % 4));
        const TouchedWord word = word_of(cells, number);
        if (access.compares) {
            const Touch& read = word.cell.read;
            if (read.block == now.block && read.thread == now.thread) compared_sites.insert(read.site);
        }
        auto is_settled = [&](const Touch* before) { return settled(before, now, oldest); };
        const bool quiet = is_settled(&word.cell.write) && is_settled(word.other_write()) &&
                           (!access.write || (is_settled(&word.cell.read) && is_settled(word.other_read())));
        if (!quiet && access.write) check_write(access, word, now, oldest, space, offset);
        if (!quiet && !access.write) check_read(access, word, now, oldest, space, offset);
        remember(access, word, now, oldest);
    }
}

void drop_compared(Launch* launch) {
    std::erase_if(launch->findings, [](const RawFinding& f) {
        return f.unless_compared && compared_sites.contains(uint32_t(f.unless_compared - 1));
    });
}

void flush_pending_write() {
    if (!pending.active) return;
    pending.active = false;
    if (!memcmp(pending.old_value.data(), reinterpret_cast<const void*>(pending.address), pending.old_value.size())) return;
    mark(pending.line ? uint64_t(pending.line) : uint64_t(pending.pc), pending.other);
    note_pair(pending.thread->block->launch, "data_race", pending.message, pending.thread, pending.line, pending.pc, true,
              pending.other);
}

void check_begin_block(BlockState* b) {
    if (!b->shadow) {
        b->shadow = new Shadow{map_cells((kStaticArena + kDynamicArena) / 4 + 8).cells(), {}};
        b->shadow->initialised.resize(kStaticArena + kDynamicArena + kPage);
    }
    Shadow* shadow = b->shadow;
    std::fill_n(shadow->initialised.begin(), shadow->used_static, 0);
    std::fill(shadow->initialised.begin() + kStaticArena, shadow->initialised.begin() + shadow->used_dynamic, 0);
    shadow->used_static = 0;
    shadow->used_dynamic = kStaticArena;
}
}  // namespace emu
