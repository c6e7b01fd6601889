// Synchronisation through memory: an atomic or volatile write, an arrival at an mbarrier or a bulk copy that signals one
// releases what its thread may know; an atomic or volatile read of the same word, or a wait, acquires it. What is meant
// for other blocks needs a fence besides, between the write and the flag. Followed only when two accesses are about to
// be called a race.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "check.h"

namespace emu {
namespace {
struct Moment {   // a point in the life of a block
    uint32_t block, epoch, warp_epoch;
    uint16_t thread;
};
struct Release {
    Moment at;
    uint32_t tick;
    uint32_t acquires;   // the block had made so far
    uint32_t fence;      // tick of the thread's last fence before it, or 0
    bool in_block;       // reaches its own block only
};
struct Fence {
    Moment at;
    uint32_t tick;
};
struct Word {
    std::vector<Release> releases;
    uint32_t told = 0;   // others know so many of the first: no later release is merged into them
};
struct Acquire {
    Moment at;
    const Word* word;
    uint32_t tick;
    uint32_t releases;   // of the word that were visible
    bool in_block;       // sees its own block only
};

struct Acquires {   // of a block, in order of time
    std::vector<Acquire> all;
    std::unordered_map<uint16_t, std::vector<uint32_t>> of_warp;   // which of them
    uint32_t told = 0;   // releases tell of so many of the first: what is seen later is not merged into them
};

struct Reached {
    Release release;
    Moment through;   // where the reading block acquired what leads to it
};

constexpr size_t kTooMany = 1 << 20;
std::unordered_map<uintptr_t, Word> words;
std::unordered_map<uint32_t, Acquires> acquires_of_block;
std::unordered_map<uint32_t, std::unordered_map<uint16_t, Fence>> fences_of_block;   // the last of each thread
std::unordered_map<uint64_t, Reached> known;   // reader and writer block: a release that orders them
uint32_t ticks = 1;
bool gave_up = false;   // too much to follow: everything counts as ordered, and as bytes that were not followed

Moment now() {
    const BlockState* b = current_block();
    return Moment{b->serial, b->epoch, current->warp_epoch, uint16_t(current->rank)};
}

bool same_place(const Moment& a, const Moment& b) {
    return a.block == b.block && a.epoch == b.epoch && a.warp_epoch == b.warp_epoch && a.thread == b.thread;
}

bool before(const Moment& a, const Moment& b) {   // in one block, by barriers or program order
    if (a.thread == b.thread || a.epoch < b.epoch) return true;
    return a.thread / 32 == b.thread / 32 && a.warp_epoch < b.warp_epoch;
}

// Fences reach what came before them in their own thread and, through barriers, in the block's others.
bool fenced(const Release& release, const Touch& touch) {
    if (release.fence > touch.tick) return true;
    const Moment then{touch.block, touch.epoch, touch.warp_epoch, touch.thread};
    for (const auto& [thread, fence] : fences_of_block[touch.block]) {
        if (fence.tick > touch.tick && before(then, fence.at)) return true;
    }
    return false;
}

bool covers(const Release& release, const Touch& touch, bool with_fence) {
    if (release.at.block != touch.block || touch.tick >= release.tick) return false;
    if (!before(Moment{touch.block, touch.epoch, touch.warp_epoch, touch.thread}, release.at)) return false;
    return !with_fence || fenced(release, touch);
}

struct Scanned {
    uint32_t limit, epoch, warp_epoch;
};
struct Walked {
    uint32_t block, releases;
    bool in_block;
};

// Searches what `at` has acquired, and what the releasing blocks had acquired before.
struct Wanted {
    const Touch& touch;
    bool with_fence;
    bool nearby;   // only by way of the touch's block
    Reached found;
    std::unordered_set<const void*> seen;
    // What needs no second look. A kernel whose threads wait for each other at every step has thousands of both.
    std::unordered_map<uint64_t, Scanned> scanned;   // by block and thread
    std::unordered_map<const Word*, std::vector<Walked>> walked;

    Wanted(const Touch& touch, bool with_fence, bool nearby) : touch(touch), with_fence(with_fence), nearby(nearby) {}

    // Whether all that `at` could see of its block's first acquires has been followed, or is being followed. A later
    // moment of the same thread sees all that an earlier one sees.
    bool has_scanned(const Moment& at, uint32_t limit) {
        Scanned& last = scanned[uint64_t(at.block) << 16 | at.thread];
        if (limit <= last.limit && at.epoch <= last.epoch && at.warp_epoch <= last.warp_epoch) return true;
        if (limit >= last.limit && at.epoch >= last.epoch && at.warp_epoch >= last.warp_epoch) {
            last = {limit, at.epoch, at.warp_epoch};
        }
        return false;
    }

    // How many of a word's first releases have been followed for this block; from now on, `releases` of them.
    uint32_t walked_before(const Acquire& acquire, uint32_t block) {
        for (Walked& one : walked[acquire.word]) {
            if (one.block != block || one.in_block != acquire.in_block) continue;
            const uint32_t before = one.releases;
            one.releases = std::max(before, acquire.releases);
            return before;
        }
        walked[acquire.word].push_back({block, acquire.releases, acquire.in_block});
        return 0;
    }
};
// A moment whose block's first `limit` acquires are still to be followed, and where the chain to it began.
struct Pending {
    Moment at;
    uint32_t limit;
    const Acquire* through;   // none where it begins here
    int depth;   // of the calls that follow it
};

// Chains are as long as a grid has blocks, and a thread's stack is small: what lies deeper waits in a list.
constexpr int kDeepest = 32;

// What came before the touch does not order it, and neither does what that had acquired. Ticks grow along a block's
// acquires and a word's releases, so both are followed from their ends, as far as the touch.
bool search_from(const Pending& from, Wanted& wanted, std::vector<Pending>& pending);

bool search_by(const Acquire& acquire, const Pending& from, Wanted& wanted, std::vector<Pending>& pending) {
    const Moment& at = from.at;
    const Acquire* through = from.through ? from.through : &acquire;
    const uint32_t walked = wanted.walked_before(acquire, at.block);
    for (uint32_t k = acquire.releases; k-- > walked;) {
        const Release& release = acquire.word->releases[k];
        if (release.tick <= wanted.touch.tick) break;
        if ((release.in_block || acquire.in_block) && release.at.block != at.block) continue;
        if (wanted.nearby && release.at.block != wanted.touch.block) continue;
        if (!wanted.seen.insert(&release).second) continue;
        if (covers(release, wanted.touch, wanted.with_fence)) {
            wanted.found = {release, through->at};
            return true;
        }
        if (!release.acquires) continue;
        if (from.depth == kDeepest) {
            pending.push_back({release.at, release.acquires, through, 0});
        } else if (search_from({release.at, release.acquires, through, from.depth + 1}, wanted, pending)) {
            return true;
        }
    }
    return false;
}

// Of the block's first `limit` acquires: those of the same warp, and those before the last barrier.
bool search_from(const Pending& from, Wanted& wanted, std::vector<Pending>& pending) {
    const Moment& at = from.at;
    const uint32_t limit = from.limit;
    const auto own = acquires_of_block.find(at.block);
    if (own == acquires_of_block.end() || wanted.has_scanned(at, limit)) return false;
    const auto& all = own->second.all;
    const uint16_t warp = at.thread / 32;
    if (const auto mine = own->second.of_warp.find(warp); mine != own->second.of_warp.end()) {
        const auto& which = mine->second;
        for (auto i = std::lower_bound(which.begin(), which.end(), limit); i != which.begin();) {
            const Acquire& acquire = all[*--i];
            if (acquire.tick <= wanted.touch.tick) break;
            if (before(acquire.at, at) && search_by(acquire, from, wanted, pending)) return true;
        }
    }
    const auto earlier = [&](const Acquire& acquire) { return acquire.at.epoch < at.epoch; };
    for (auto i = std::partition_point(all.begin(), all.begin() + std::min<size_t>(limit, all.size()), earlier);
         i != all.begin();) {
        const Acquire& acquire = *--i;
        if (acquire.tick <= wanted.touch.tick) break;
        if (acquire.at.thread / 32 != warp && search_by(acquire, from, wanted, pending)) return true;
    }
    return false;
}

bool search(const Moment& at, uint32_t limit, Wanted& wanted) {
    std::vector<Pending> pending{{at, limit, nullptr, 0}};
    while (!pending.empty()) {
        const Pending next = pending.back();
        pending.pop_back();
        if (search_from(next, wanted, pending)) return true;
    }
    return false;
}
}  // namespace

void begin_ordering() {
    words.clear();
    acquires_of_block.clear();
    fences_of_block.clear();
    known.clear();
    ticks = 1;
    gave_up = false;
}

uint32_t release_tick() { return ticks; }

namespace {
uint32_t last_fence(const Moment& at) {
    const auto block = fences_of_block.find(at.block);
    if (block == fences_of_block.end()) return 0;
    const auto fence = block->second.find(at.thread);
    return fence == block->second.end() ? 0 : fence->second.tick;
}
}  // namespace

void remember_fence() {
    if (gave_up) return;
    const Moment at = now();
    fences_of_block[at.block][at.thread] = Fence{at, ++ticks};
}

bool fenced_before() {
    const auto own = fences_of_block.find(current_block()->serial);
    if (own == fences_of_block.end()) return false;
    const Moment at = now();
    return std::any_of(own->second.begin(), own->second.end(), [&](const auto& one) { return before(one.second.at, at); });
}

void release(uintptr_t address, bool in_block) {
    if (gave_up) return;
    Word& word = words[address & ~uintptr_t(3)];
    auto& releases = word.releases;
    const Moment at = now();
    Acquires& own = acquires_of_block[at.block];
    const uint32_t acquired = own.told = uint32_t(own.all.size());
    const uint32_t fence = last_fence(at);
    if (releases.size() > word.told && same_place(releases.back().at, at)) {
        releases.back().tick = ++ticks;
        releases.back().acquires = acquired;
        releases.back().fence = fence;
        releases.back().in_block &= in_block;
        return;
    }
    releases.push_back(Release{at, ++ticks, acquired, fence, in_block});
    gave_up = releases.size() > kTooMany;
}

uint32_t releases_so_far(uintptr_t address) {
    const auto word = words.find(address & ~uintptr_t(3));
    if (word == words.end()) return 0;
    word->second.told = uint32_t(word->second.releases.size());
    return word->second.told;
}

void acquire(uintptr_t address, bool in_block, uint32_t most) {
    const auto word = words.find(address & ~uintptr_t(3));
    if (gave_up || word == words.end()) return;
    auto& [acquires, of_warp, told] = acquires_of_block[current_block()->serial];
    const Moment at = now();
    const auto& releases = word->second.releases;
    const uint32_t count = std::min(most, uint32_t(releases.size()));
    if (count && !same_place(releases[count - 1].at, at)) word->second.told = std::max(word->second.told, count);
    if (!acquires.empty() && acquires.back().word == &word->second && same_place(acquires.back().at, at)) {
        Acquire& last = acquires.back();
        if (acquires.size() > told || (count <= last.releases && last.in_block <= in_block)) {
            last.tick = ticks;
            last.releases = std::max(last.releases, count);
            last.in_block &= in_block;
            return;
        }
    }
    of_warp[at.thread / 32].push_back(uint32_t(acquires.size()));
    acquires.push_back(Acquire{at, &word->second, ticks, count, in_block});
    gave_up = acquires.size() > kTooMany;
}

bool ordered_in_block(const Touch& touch, uint32_t epoch, unsigned thread, uint32_t warp_epoch) {
    const Moment then{touch.block, touch.epoch, touch.warp_epoch, touch.thread};
    return before(then, Moment{touch.block, epoch, warp_epoch, uint16_t(thread)});
}

Path ordered_by_release(const Touch& touch, bool was_write) {
    if (gave_up) {
        count_not_followed(sizeof(uint32_t));
        return Path::Complete;
    }
    if (acquires_of_block.empty()) return Path::None;
    const Moment at = now();
    // Within a block a barrier would do as well, and atomics reach the memory that all blocks see by themselves.
    const bool with_fence = was_write && needs_fence(touch.kind) && touch.block != at.block;
    const uint64_t key = uint64_t(at.block) << 32 | touch.block;
    const auto memory = known.find(key);
    // A release known to reach this block orders the touch too if it covers it, for the thread that acquired it and for
    // all that a barrier puts after that one; asking again would find the same.
    if (memory != known.end() && at.block != touch.block && before(memory->second.through, at) &&
        covers(memory->second.release, touch, with_fence)) {
        return Path::Complete;
    }
    const auto own = acquires_of_block.find(at.block);
    const uint32_t limit = own == acquires_of_block.end() ? 0 : uint32_t(own->second.all.size());
    // Most of what is ordered within a block is so without the others, each of which may have a long history.
    if (touch.block == at.block) {
        Wanted nearby(touch, with_fence, true);
        if (search(at, limit, nearby)) return Path::Complete;
    }
    Wanted wanted(touch, with_fence, false);
    if (search(at, limit, wanted)) {
        known[key] = wanted.found;
        return Path::Complete;
    }
    Wanted without_fence(touch, false, false);
    return with_fence && search(at, limit, without_fence) ? Path::Unfenced : Path::None;
}

Touch touch_now(const Access& access, uint8_t bytes) {
    const Moment at = now();
    const uintptr_t begin = current->block->launch->code_begin;
    const uint32_t site = access.line ? 0x80000000u | uint32_t(access.line) : uint32_t(access.pc - begin);
    return Touch{at.block, at.epoch, at.warp_epoch, ticks, site, at.thread, bytes, access.kind};
}
}  // namespace emu
