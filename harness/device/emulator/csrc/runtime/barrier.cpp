// Barriers of a block, of a cluster and of the grid.
#include <algorithm>
#include <map>

#include "check.h"
#include "state.h"

namespace emu {
namespace {
void complete(BlockState* b) {
    if (options.check) {
        count_settle(b);
        count_barrier(b);
    }
    b->reduced = b->reduction;
    b->arrived = 0;
    b->barrier_line = 0;
    b->epoch = new_epoch();
    release_waiting(b, State::AtBarrier);
}

void check_matching(BlockState* b, int line, Reduce kind) {
    if (b->barrier_line == line && b->barrier_kind == kind) return;
    note(b->launch, "divergent_barrier",
         text("Threads of one block wait in different barriers: some at line %d, this one at line %d. All threads "
              "of a block must reach the same __syncthreads().", b->barrier_line, line), current, line);
}

void check_skipped(BlockState* b, int line, const Thread* thread) {
    if (!b->fell_through) return;
    note(b->launch, "divergent_barrier",
         text("%u threads of the block reached the end of the kernel without the barrier at line %d that others "
              "wait in. All threads of a block must execute it.", b->fell_through, line), thread, line);
}

void open(BlockState* b, int line, Reduce kind) {
    b->barrier_line = line;
    b->barrier_kind = kind;
    b->reduction = kind == Reduce::And ? 1 : 0;
}

void accumulate(BlockState* b, Reduce kind, int predicate) {
    if (kind == Reduce::Count) b->reduction += predicate != 0;
    if (kind == Reduce::And) b->reduction &= predicate != 0;
    if (kind == Reduce::Or) b->reduction |= predicate != 0;
}
}  // namespace

int block_barrier(int line, Reduce kind, int predicate) {
    if (!current) fail("host_code_in_kernel", line, "__syncthreads() is called outside of a kernel.");
    BlockState* b = current_block();
    Thread* self = current;
    self->line = line;
    if (!b->arrived) open(b, line, kind);
    else check_matching(b, line, kind);
    check_skipped(b, line, self);
    accumulate(b, kind, predicate);
    self->state = State::AtBarrier;
    if (++b->arrived == b->alive) complete(b);
    yield();
    return current_block()->reduced;
}

void barrier_after_exit(BlockState* b) {
    check_skipped(b, b->barrier_line, current);
    if (b->arrived == b->alive) complete(b);
}

namespace {
void open_named(BlockState* b, NamedBarrier& barrier) {
    for (unsigned rank : barrier.waiting) make_ready(b, &b->threads[rank]);
    barrier = NamedBarrier{};
    if (options.check) count_barrier(b);
    b->epoch = new_epoch();
}
}  // namespace

void named_barrier(unsigned id, unsigned threads, bool wait, int line) {
    BlockState* b = current_block();
    if (id > 15 || threads == 0 || threads % 32 || threads > 1024) {
        fail("divergent_barrier", line, "Barrier %u for %u threads does not exist: there are 16, each for a multiple "
             "of 32 threads.", id, threads);
    }
    NamedBarrier& barrier = b->named[id];
    if (barrier.expected && barrier.expected != threads) {
        fail("divergent_barrier", line, "Threads wait in barrier %u for %u threads, this one for %u.", id,
             barrier.expected, threads);
    }
    barrier.expected = threads;
    barrier.arrived++;
    current->line = line;
    if (wait) {
        current->state = State::AtNamed;
        barrier.waiting.push_back(current->rank);
    }
    if (barrier.arrived == threads) open_named(b, barrier);
    if (wait) yield();
}

void grid_barrier(int line) {
    BlockState* b = current_block();
    if (!b->launch->config.cooperative) {
        fail("divergent_barrier", line, "The kernel calls grid.sync() but was not launched with "
             "cudaLaunchCooperativeKernel, so that its blocks need not be resident together.");
    }
    current->line = line;
    current->state = State::AtGridBarrier;
    b->at_grid++;
    if (options.check && b->at_grid == b->alive) count_barrier(b);
    yield();
}

void open_cluster(Cluster* cluster) {
    cluster->arrived = 0;
    cluster->generation++;
    cluster->epoch = new_epoch();
    const bool waited = std::any_of(cluster->peers.begin(), cluster->peers.end(), [](const Block* peer) {
        return static_cast<const BlockState*>(peer)->waited_for_launch;
    });
    for (Block* peer : cluster->peers) {
        auto* b = static_cast<BlockState*>(peer);
        b->waited_for_launch = waited;
        b->epoch = new_epoch();
        release_waiting(b, State::AtClusterBarrier);
    }
}

void cluster_arrive(int) {
    Cluster* cluster = current_block()->cluster_state;
    if (!cluster) return;
    current->cluster_token = cluster->generation;
    if (++cluster->arrived == cluster->needed) open_cluster(cluster);
}

void cluster_wait(int line) {
    Cluster* cluster = current_block()->cluster_state;
    if (!cluster) return block_barrier(line, Reduce::None, 0), void();
    current->line = line;
    const uint64_t mine = current->cluster_token;
    while (cluster->generation == mine) {
        current->state = State::AtClusterBarrier;
        yield();
    }
}

void report_deadlock(BlockState* b) {
    struct Group {
        unsigned count = 0;
        const Thread* first = nullptr;
    };
    std::map<std::string, Group> groups;
    for (const Thread& thread : b->threads) {
        if (thread.state == State::Done) continue;
        const char* what = thread.state == State::AtWarpOp ? "a warp operation" : "a barrier";
        if (thread.state == State::AtGridBarrier) what = "the grid barrier";
        std::string place = text("%s at line %d", what, thread.line);
        if (thread.state == State::AtWarpOp) place += text(" with mask 0x%08x", thread.mask);
        Group& group = groups[place];
        if (!group.count++) group.first = &thread;
    }
    std::string message = "The block can never go on: ";
    const Thread* first = nullptr;
    bool warp = false;
    for (const auto& [place, group] : groups) {
        if (first) message += "; ";
        else first = group.first;
        warp |= group.first->state == State::AtWarpOp;
        message += text("%u threads wait in %s (the first is thread %u)", group.count, place.c_str(), group.first->rank);
    }
    const unsigned returned = unsigned(b->threads.size()) - b->alive;
    if (returned) message += text("; %u threads have returned", returned);
    const bool alone = warp && groups.size() == 1 && !returned;
    const char* advice = alone ? " Every lane named in a mask must execute the operation."
                               : " All threads named must reach the same operation.";
    note(b->launch, warp ? "bad_shuffle" : "divergent_barrier", message + "." + advice, first, first->line);
    b->launch->abort = true;
}
}  // namespace emu
