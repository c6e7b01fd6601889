// Check mode: every access of the submission's code comes here before it happens. One worker, so no locks.
#pragma once
#include "state.h"

namespace emu {
// Published: a plain write behind a fence. Flag: a volatile write behind one, a volatile read that polls, an operation
// that PTX calls strong.
enum class Kind : uint8_t { Plain, Published, Volatile, Flag, Atomic, BlockAtomic };
inline bool is_atomic(Kind kind) { return kind >= Kind::Atomic; }
inline bool is_volatile(Kind kind) { return kind == Kind::Volatile || kind == Kind::Flag; }
inline bool needs_fence(Kind kind) { return kind <= Kind::Volatile; }   // to be seen in order by another block


struct Access {
    uintptr_t address;
    size_t bytes;
    bool write;
    Kind kind;
    uintptr_t pc;   // where the access is, or 0 when `line` is known
    int line;
    bool exchange = false;   // an atomic that needs no earlier value
    bool compares = false;   // an atomic that changes only a value that its thread expects
};

// Of the running thread's next volatile access; `site` is its place in the code.
Kind volatile_kind(uintptr_t address, bool write, uintptr_t site);
constexpr uintptr_t kLineSite = uintptr_t(1) << 63;   // marks a place that is known by its line

// check.cpp: is the address the kernel's to use, aligned, initialised?
void checked_access(const Access& access);
// A block takes its shared memory with it when it ends: a finding where `owner`, a peer of the cluster, has.
void require_running(const BlockState* owner, const char* does, int line, uintptr_t pc = 0);

// races.cpp: which threads touched these bytes before
struct Touch {
    uint32_t block;        // serial of the block
    uint32_t epoch;        // the block's barrier epoch
    uint32_t warp_epoch;
    uint32_t tick;         // releases made in the launch so far, see ordering.cpp
    uint32_t site;         // offset in the submission's code, or a line with the top bit set
    uint16_t thread;
    uint8_t bytes;         // of the word, as a mask; and kHasOther
    Kind kind;
};
constexpr uint8_t kHasOther = 0x80;   // the word's OtherTouches have one more of the same kind
struct Cell {              // one for each 4 bytes of memory
    Touch write, read;
};
// Beside a cell, where few accesses need to look: whether memory answers at once is most of what an access costs.
struct OtherTouches {
    Touch write;           // of bytes that the cell's left alone: 16-bit types share words
    Touch read;            // the last by a thread other than the cell's
};
struct Cells {
    Cell* first = nullptr;
    OtherTouches* others = nullptr;
};
struct Shadow {            // which thread touched which byte of one block's shared memory
    Cells cells;
    std::vector<uint8_t> initialised;   // one for each byte
    size_t used_static = 0, used_dynamic = kStaticArena;   // ends of what may be set in it, in either part
};
struct GlobalCells {
    Cells cells;               // none for memory too large to follow
    uint32_t since_serial;     // touches by blocks before this one belong to other memory
};
GlobalCells global_cells(const EmuRegion& region);
void begin_races(Launch* launch);
// Touches by blocks before `oldest` are ordered before all of this launch. `base` is the address of the first cell's
// word, `start` that of the variable, for the message.
void follow(const Access& access, const Cells& cells, uint32_t oldest, const void* base, uintptr_t start, const char* space);
void flush_pending_write();
// Of races between a plain read and an atomic those whose reader then compares the word and swaps: a guess that is tested.
void drop_compared(Launch* launch);

// ordering.cpp: what happens before what, beyond barriers
Touch touch_now(const Access& access, uint8_t bytes);
bool ordered_in_block(const Touch& before, uint32_t epoch, unsigned thread, uint32_t warp_epoch);
enum class Path : uint8_t {   // from one block to another through memory
    None,
    Unfenced,    // a flag was set and seen, but no fence stands between the write and the flag
    Complete
};
Path ordered_by_release(const Touch& before, bool was_write);
void remember_fence();   // the running thread executed a fence of the device
// `in_block`: by an atomic that reaches the own block only
void release(uintptr_t address, bool in_block = false);
void acquire(uintptr_t address, bool in_block = false, uint32_t most = UINT32_MAX);   // sees the first `most` releases alone
uint32_t releases_so_far(uintptr_t address);
bool fenced_before();   // a fence of the device, of a thread that a barrier orders before this one
void begin_ordering();
uint32_t release_tick();

// blocks and launches
void check_begin_launch(Launch* launch);
void check_begin_block(BlockState* block);

// repeat.cpp: of undefined values, whether they are used
constexpr size_t kLargestFollowed = size_t(64) << 20;   // cells take 12 bytes for each byte that kernels touch, or 24
void begin_repeat();
void forbid_repeat();   // the launch writes what cannot be put back
void save_for_repeat(const EmuRegion& region, const Cell* cells);   // before the launch writes there
void drop_unused_values(Launch* launch);
// Of races between volatile accesses in global memory those of words that are polled: flags, or flag and data in one. A
// reader that comes late reads once, so where nobody polled, the launch runs again and lingers at volatile writes.
void drop_polled(Launch* launch);
void remember_poll(uintptr_t address, uintptr_t site);
void linger(uintptr_t site);   // before a volatile write

// counts.cpp
void count_access(const Access& access, bool shared);
void count_barrier(BlockState* block);
void count_not_followed(size_t bytes);
void count_settle(BlockState* block);   // the lanes of each warp have met: what they did is complete
void begin_counts(Launch* launch);
void end_counts(Launch* launch);
}  // namespace emu
