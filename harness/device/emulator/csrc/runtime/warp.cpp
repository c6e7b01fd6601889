// Warp operations: lanes meet, values are exchanged, all go on.
#include <algorithm>

#include "check.h"
#include "state.h"

namespace emu {
namespace {
uint64_t undefined() { return 0x0101010101010101ull * fill; }   // what a lane reads that nobody wrote

struct Meeting {
    BlockState* block;
    Thread* first;       // lane 0 of the warp
    unsigned lanes;      // that exist
    uint32_t present;    // lanes that take part
};

void report_missing_lane(const Meeting& m, const Thread& reader) {
    note_value("bad_shuffle",
         text("The shuffle reads lane %d, which takes no part in it (mask 0x%08x, %u lanes exist in the warp), so "
              "the value is undefined.", reader.source, reader.mask, m.lanes), &reader, reader.line);
}

void shuffle(const Meeting& m, Thread& reader) {
    if (reader.source >= 0 && reader.source < 32 && m.present >> reader.source & 1) {
        const Thread& writer = m.first[reader.source];
        reader.out[0] = writer.in[0];
        reader.out[1] = writer.in[1];
        return;
    }
    reader.out[0] = reader.out[1] = undefined();
    if (options.check) report_missing_lane(m, reader);
}

uint32_t ballot(const Meeting& m) {
    uint32_t result = 0;
    for (unsigned i = 0; i < m.lanes; i++) {
        if (m.present >> i & 1 && m.first[i].in[0]) result |= 1u << i;
    }
    return result;
}

uint32_t match(const Meeting& m, const Thread& reader) {
    uint32_t result = 0;
    for (unsigned i = 0; i < m.lanes; i++) {
        if (m.present >> i & 1 && m.first[i].in[0] == reader.in[0]) result |= 1u << i;
    }
    return result;
}

// Lanes named by the mask that have not returned all wait in the same operation.
bool complete(BlockState* b, const Thread* thread, Meeting* m) {
    const unsigned first = thread->warp * 32;
    *m = Meeting{b, &b->threads[first], std::min(32u, unsigned(b->threads.size()) - first), 0};
    // From the lane whose turn is next: while any is missing, that one most likely is.
    const unsigned step = options.order == Order::Reverse ? 31 : 1;
    for (unsigned k = 0, i = thread->lane; k < 32; k++, i = (i + step) % 32) {
        if (i >= m->lanes || !(thread->mask >> i & 1)) continue;
        const Thread& other = m->first[i];
        if (other.state == State::Done) continue;
        if (other.state != State::AtWarpOp || other.mask != thread->mask || other.op != thread->op) return false;
        m->present |= 1u << i;
    }
    return true;
}

void exchange(const Meeting& m, uint32_t epoch) {
    const uint32_t votes = m.first[__builtin_ctz(m.present)].op == WarpOp::Ballot ? ballot(m) : 0;
    for (unsigned i = 0; i < m.lanes; i++) {
        if (!(m.present >> i & 1)) continue;
        Thread& lane = m.first[i];
        if (lane.op == WarpOp::Shuffle) shuffle(m, lane);
        if (lane.op == WarpOp::Ballot) lane.out[0] = votes;
        if (lane.op == WarpOp::Match) lane.out[0] = match(m, lane);
        lane.warp_epoch = epoch;
    }
}
}  // namespace

bool try_warp(BlockState* b, Thread* thread) {
    Meeting m;
    if (!complete(b, thread, &m)) return false;
    uint32_t epoch = 0;
    for (unsigned i = 0; i < m.lanes; i++) {
        if (m.present >> i & 1) epoch = std::max(epoch, m.first[i].warp_epoch);
    }
    exchange(m, epoch + 1);
    for (unsigned k = 0; k < m.lanes; k++) {
        const unsigned i = options.order == Order::Reverse ? m.lanes - 1 - k : k;
        if (m.present >> i & 1) make_ready(b, &m.first[i]);
    }
    return true;
}

void warp_operation(WarpOp op, uint32_t mask, int source, unsigned bytes, int line) {
    if (!current) fail("host_code_in_kernel", line, "A warp operation is called outside of a kernel.");
    Thread* self = current;
    self->op = op;
    self->source = source;
    self->bytes = bytes;
    self->line = line;
    if (op == WarpOp::Active) {   // resolved when nothing else of the block can run
        self->mask = 1u << self->lane;
        self->state = State::AtWarpOp;
        return yield();
    }
    self->mask = mask;
    if (!(mask >> self->lane & 1)) {
        fail("bad_shuffle", line, "Lane %u executes a warp operation whose mask 0x%08x does not name it.", self->lane,
             mask);
    }
    self->state = State::AtWarpOp;
    try_warp(current_block(), self);
    yield();
}

// __activemask(): lanes wait until nothing else of the block can run; those of a warp at one place are converged.
bool resolve_active_masks(BlockState* b) {
    bool any = false;
    for (Thread& thread : b->threads) {
        if (thread.state != State::AtWarpOp || thread.op != WarpOp::Active) continue;
        const unsigned first = thread.warp * 32, last = std::min<unsigned>(first + 32, unsigned(b->threads.size()));
        uint32_t mask = 0, epoch = 0;
        const int line = thread.line;
        auto together = [line](const Thread& other) {
            return other.state == State::AtWarpOp && other.op == WarpOp::Active && other.line == line;
        };
        for (unsigned i = first; i < last; i++) {
            if (!together(b->threads[i])) continue;
            mask |= 1u << b->threads[i].lane;
            epoch = std::max(epoch, b->threads[i].warp_epoch);
        }
        for (unsigned i = first; i < last; i++) {
            Thread& other = b->threads[i];
            if (!together(other)) continue;
            other.out[0] = mask;
            other.warp_epoch = epoch + 1;
            make_ready(b, &other);
        }
        any = true;
    }
    return any;
}
}  // namespace emu
