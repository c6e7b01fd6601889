// Who runs next: threads within a block, blocks within a worker.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "check.h"
#include "state.h"

namespace emu {
namespace {
bool has_ready(const BlockState* b) { return b->head < b->ready.size(); }
bool has_work(const BlockState* b) { return has_ready(b) || b->started < b->threads.size(); }

Thread* take_ready(BlockState* b, size_t at) {
    const uint16_t index = b->ready[at];
    if (at == b->head) {
        b->head++;
    } else {
        b->ready[at] = b->ready.back();
        b->ready.pop_back();
    }
    if (b->head == b->ready.size()) {
        b->ready.clear();
        b->head = 0;
    }
    return &b->threads[index];
}

Thread* start_next(BlockState* b) {
    const unsigned i = b->started++, n = unsigned(b->threads.size());
    unsigned index = i;
    if (options.order == Order::Reverse) index = n - 1 - i;
    if (options.order == Order::Random) index = b->start_order[i];
    Thread* thread = &b->threads[index];
    prepare_fiber(b, thread);
    thread->state = State::Ready;
    return thread;
}
}  // namespace

Thread* pick(BlockState* b) {
    const bool fresh = b->started < b->threads.size();
    if (options.order != Order::Random) {
        if (has_ready(b) && !(fresh && b->one_waits)) return take_ready(b, b->head);
        b->one_waits = false;
        return fresh ? start_next(b) : nullptr;
    }
    uint64_t& random = this_worker->random;
    const size_t waiting = b->ready.size() - b->head;
    if (waiting && (!fresh || next_random(random) & 7)) return take_ready(b, b->head + next_random(random) % waiting);
    return fresh ? start_next(b) : nullptr;
}

void make_ready(BlockState* b, Thread* thread) {
    thread->state = State::Ready;
    b->ready.push_back(uint16_t(thread->rank));
}

void release_waiting(BlockState* b, State state) {
    const size_t n = b->threads.size();
    for (size_t k = 0; k < n; k++) {
        Thread& thread = b->threads[options.order == Order::Reverse ? n - 1 - k : k];
        if (thread.state == state) make_ready(b, &thread);
    }
}

// Leave the current thread, already queued or waiting, for another one of its block or for the scheduler.
void yield() {
    if (options.check) flush_pending_write();
    Thread* self = current;
    BlockState* b = current_block();
    Thread* next = b->launch->abort ? nullptr : pick(b);
    if (next == self) return;
    if (next) switch_between(self, next);
    else suspend_to_scheduler(self);
}

void give_way() {
    if (!current) return;
    BlockState* b = current_block();
    const bool alone = !has_work(b);
    if (alone && b->launch->blocks == 1) return;
    b->ready.push_back(uint16_t(current->rank));
    b->one_waits = true;
    // A block whose threads only poll must let the blocks run that they wait for.
    if (++b->polls % (alone ? 4 : 256) == 0 || current->preempted) {
        if (options.check) flush_pending_write();
        current->preempted = false;
        b->gave_way = true;
        suspend_to_scheduler(current);
    } else {
        yield();
    }
}

void early_return() { current->returned_early = true; }

void thread_ended(Thread* thread) {
    BlockState* b = current_block();
    if (options.check) flush_pending_write();
    thread->state = State::Done;
    b->alive--;
    if (!thread->returned_early) b->fell_through++;
    if (b->arrived) barrier_after_exit(b);
    const unsigned first = thread->warp * 32;
    for (unsigned i = first; i < first + 32 && i < b->threads.size(); i++) {
        Thread& other = b->threads[i];
        if (other.state == State::AtWarpOp && other.mask >> thread->lane & 1) try_warp(b, &other);
    }
    if (!b->cluster_state) return;
    Cluster* cluster = b->cluster_state;
    cluster->needed--;
    if (cluster->needed && cluster->arrived == cluster->needed) open_cluster(cluster);
}

namespace {
void run_block(BlockState* b) {  // on the worker's own stack
    b->gave_way = false;
    while (!b->launch->abort) {
        Thread* next = pick(b);
        if (!next) {
            if (resolve_active_masks(b)) continue;
            return;
        }
        switch_to_thread(next);
        if (b->retiring) {
            recycle_stack(b, b->retiring);
            b->retiring = nullptr;
        }
        if (b->gave_way) return;
    }
}

void check_all_at_grid(const BlockState* b) {
    if (!b->fell_through) return;
    const Thread& waiting = *std::find_if(b->threads.begin(), b->threads.end(), [](const Thread& thread) {
        return thread.state == State::AtGridBarrier;
    });
    note(b->launch, "divergent_barrier",
         text("%u threads of the block reached the end of the kernel without the grid barrier at line %d that others wait "
              "in. All threads of the grid must execute it.", b->fell_through, waiting.line), &waiting, waiting.line);
}

void arrive_at_grid(Launch* launch, BlockState* b) {
    check_all_at_grid(b);
    b->grid_generation = launch->grid_generation;
    b->waits_for_grid = true;
    if (launch->grid_arrived.fetch_add(1) + 1 < launch->blocks) return;
    launch->grid_arrived = 0;
    launch->grid_epoch = new_epoch();
    launch->waited_before_barrier = launch->waited_for_launch;
    launch->grid_generation++;
}

bool cluster_finished(BlockState* b) {
    if (!b->cluster_state) return true;
    for (Block* peer : b->cluster_state->peers) {
        if (static_cast<BlockState*>(peer)->alive) return false;
    }
    return true;
}

bool cluster_stuck(BlockState* b) {
    for (Block* peer : b->cluster_state->peers) {
        auto* other = static_cast<BlockState*>(peer);
        if (has_work(other) || other->gave_way) return false;
    }
    return true;
}

bool waits_in_cluster(const BlockState* b) {
    if (!b->cluster_state) return false;
    for (const Thread& thread : b->threads) {
        if (thread.state == State::AtClusterBarrier) return true;
    }
    return false;
}

// Runs a block as far as it goes. Returns true when it has ended.
bool advance(Launch* launch, BlockState* b, bool* progress) {
    if (b->waits_for_grid) {
        if (launch->grid_generation == b->grid_generation) return false;
        b->waits_for_grid = false;
        b->at_grid = 0;
        b->epoch = new_epoch();
        release_waiting(b, State::AtGridBarrier);
    }
    if (b->alive && has_work(b)) {
        run_block(b);
        if (!b->gave_way) *progress = true;
    }
    if (launch->abort) return false;
    if (!b->alive) return cluster_finished(b);
    if (b->at_grid == b->alive) {
        arrive_at_grid(launch, b);
    } else if (!b->gave_way && !has_work(b)) {
        if (!waits_in_cluster(b) || cluster_stuck(b)) report_deadlock(b);
    }
    return false;
}

void start_blocks(Launch* launch, Worker* worker) {
    const dim3 c = launch->config.cluster;
    const unsigned size = c.x * c.y * c.z;
    const uint64_t unit = launch->next.fetch_add(1);
    if (unit * size >= launch->blocks) return;
    Cluster* cluster = size > 1 ? new Cluster : nullptr;
    for (unsigned rank = 0; rank < size; rank++) {
        BlockState* b = take_block();
        b->worker = worker;
        b->cluster_state = cluster;
        b->cluster_rank = rank;
        const uint64_t number = unit * size + rank;
        begin_block(b, launch, launch->block_order.empty() ? number : launch->block_order[number]);
        worker->live.push_back(b);
        if (!cluster) continue;
        cluster->peers.push_back(b);
        cluster->needed += b->alive;
    }
    for (unsigned i = 0; cluster && i < size; i++) {
        static_cast<BlockState*>(cluster->peers[i])->peers = cluster->peers.data();
    }
}

void end_block(Launch* launch, BlockState* b) {
    finish_block(b);
    launch->done++;
    if (Cluster* cluster = b->cluster_state) {
        b->cluster_state = nullptr;
        b->peers = nullptr;
        if (++cluster->finished == cluster->peers.size()) delete cluster;
    }
    give_block(b);
}

// All blocks wait for the grid, or have given way to blocks that have not started.
bool wants_another(const Worker& worker) {
    for (const BlockState* b : worker.live) {
        if (!b->waits_for_grid && !b->gave_way && b->alive) return false;
    }
    return true;
}

bool grid_incomplete(Launch* launch) {
    const uint64_t waiting = launch->grid_arrived, done = launch->done;
    if (!waiting || !done || waiting + done < launch->blocks) return false;
    const Thread* nobody = nullptr;
    note(launch, "divergent_barrier",
         text("The grid barrier can never complete: %llu blocks wait in it and %llu blocks have returned.",
              (unsigned long long)waiting, (unsigned long long)done),
         nobody, launch->config.line);
    launch->abort = true;
    return true;
}

void turn(Launch* launch, Worker* worker) {
    bool progress = false;
    for (size_t i = 0; i < worker->live.size() && !launch->abort;) {
        BlockState* b = worker->live[i];
        if (!advance(launch, b, &progress)) {
            i++;
            continue;
        }
        worker->live.erase(worker->live.begin() + i);
        end_block(launch, b);
        progress = true;
    }
    if (launch->abort || grid_incomplete(launch)) return;
    const unsigned size = launch->config.cluster.x * launch->config.cluster.y * launch->config.cluster.z;
    if (wants_another(*worker) && worker->live.size() < launch->resident && launch->next * size < launch->blocks) {
        start_blocks(launch, worker);
    } else if (!progress) {
        usleep(20);
    }
}

void abandon(Worker* worker) {
    for (BlockState* b : worker->live) {
        for (Thread& thread : b->threads) recycle_stack(b, &thread);
        give_block(b);
    }
    worker->live.clear();
}
}  // namespace

void run_worker(Launch* launch, int number) {
    Worker worker;
    this_worker = &worker;
    worker.handle = pthread_self();
    worker.random = options.seed * 0x9E3779B97F4A7C15ull + uint64_t(number) * 77 + 1;
    next_random(worker.random);
    void* signal_stack = malloc(65536);
    stack_t alternative{signal_stack, 0, 65536}, before;
    sigaltstack(&alternative, &before);
    sigsetjmp(worker.escape, 1);  // a fault in a kernel comes back here, with the launch aborted
    current = nullptr;
    const unsigned size = launch->config.cluster.x * launch->config.cluster.y * launch->config.cluster.z;
    while (!launch->abort) {
        if (worker.live.empty() && launch->next * size >= launch->blocks) break;
        turn(launch, &worker);
    }
    abandon(&worker);
    sigaltstack(&before, nullptr);
    free(signal_stack);
    this_worker = nullptr;
}
}  // namespace emu
