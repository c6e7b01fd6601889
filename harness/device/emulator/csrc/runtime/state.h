// The runtime's own view of blocks, workers and launches.
#pragma once
#include <pthread.h>
#include <setjmp.h>

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "../../include/emu/runtime.h"
#include "findings.h"
#include "memory.h"

namespace emu {
enum class Order { Forward, Reverse, Random };

struct Options {
    Order order = Order::Forward;
    uint64_t seed = 1;
    int workers = 2;
    bool check = false;
    double timeout = 20;
};
extern Options options;

// The machine that kernels are told about: an H200's limits.
constexpr int kMultiprocessors = 132;
constexpr int kThreadsPerMultiprocessor = 2048;
constexpr int kBlocksPerMultiprocessor = 32;
constexpr size_t kStaticSharedLimit = 48 << 10;
constexpr size_t kDynamicSharedLimit = 232448;
constexpr size_t kSharedPerMultiprocessor = 233472;

constexpr size_t kPage = 4096;
constexpr size_t kStackBytes = 64 << 10;
constexpr size_t kStaticArena = 256 << 10;   // the limit, and red zones between the variables
constexpr size_t kDynamicArena = 256 << 10;
constexpr size_t kRedZone = 64;

constexpr unsigned char kFill = 0xFF;        // of shared memory: a NaN in every type
constexpr unsigned char kOtherFill = 0x4B;   // a large number
extern unsigned char fill;                   // kFill, but where a launch is repeated with other values

struct Slot {  // one static __shared__ variable of a block
    const void* key;
    char* data;
    size_t bytes;
};

struct NamedBarrier {
    unsigned arrived = 0, expected = 0;
    std::vector<unsigned> waiting;
};

struct AsyncCopy {
    void* to;
    const void* from;
    size_t bytes, zeros;   // zeros are written behind the copied bytes
};
struct AsyncQueue {        // of one thread
    std::vector<AsyncCopy> open;
    std::deque<std::vector<AsyncCopy>> groups;
};
struct Mbarrier {
    uint32_t expected = 0, pending = 0;   // arrivals of a phase, and those still missing
    int64_t bytes = 0;                    // announced and not yet delivered
    uint64_t phase = 0;
    std::vector<AsyncCopy> copies;
    std::array<uint32_t, 2> releases{};   // of its word, when the last even and the last odd phase were over
};

struct Worker;
struct Shadow;   // which thread touched which byte of a block's shared memory: check.h
struct Cluster;

struct BlockState : Block {
    std::vector<Thread> threads;
    unsigned started = 0, alive = 0;
    std::vector<uint16_t> ready;   // a queue: ready[head...]
    size_t head = 0;
    std::vector<uint16_t> start_order;
    std::vector<char*> free_stacks;
    Thread* retiring = nullptr;    // ended, its stack still in use until the scheduler has control

    unsigned arrived = 0;          // at the block's barrier
    int barrier_line = 0;
    Reduce barrier_kind = Reduce::None;
    int reduction = 0, reduced = 0;
    unsigned fell_through = 0;     // threads that reached the kernel's end without a return statement
    unsigned at_grid = 0;
    bool waits_for_grid = false;
    uint64_t grid_generation = 0;
    bool waits_for_cluster = false;
    bool gave_way = false;         // wants other blocks to run
    unsigned polls = 0;
    bool one_waits = false;        // maybe for a thread that has not started
    std::map<unsigned, NamedBarrier> named;
    std::map<unsigned, AsyncQueue> async;   // by rank of the thread
    std::map<void*, Mbarrier> mbarriers;    // in this block's shared memory, by address
    Cluster* cluster_state = nullptr;
    uint64_t cluster_generation = 0;

    char* arena = nullptr;         // static shared memory, and behind it the dynamic part
    char* dynamic_arena = nullptr;
    size_t arena_used = 0;
    std::vector<Slot> slots;
    Worker* worker = nullptr;
    uint64_t number = 0;           // linear block index in the grid
    uint32_t serial = 0;           // of this block among all blocks of the process
    uint32_t epoch = 0;            // grows at each barrier
    Shadow* shadow = nullptr;
    bool waited_for_launch = false;   // a thread of it executed griddepcontrol.wait
};

struct Cluster {
    std::vector<Block*> peers;
    unsigned arrived = 0, needed = 0, finished = 0;
    uint64_t generation = 0;
    uint32_t epoch = 0;   // accesses of earlier epochs came before the last barrier
};

struct Worker {
    void* stack_pointer = nullptr;
    sigjmp_buf escape;
    std::vector<BlockState*> live;
    uint64_t random;
    pthread_t handle;
    std::atomic<uint64_t> switches{0};  // grows while threads take turns; the watchdog reads it
};

// A launch, a copy or a fill in a stream.
struct Work {
    uint32_t stream;
    uint64_t turn;                   // among the work of its stream, from 1
    std::string what, file;          // the kernel, or the function
    int line, launch;
    uint32_t first_serial, last_serial;   // of its blocks, and one more than that; 0 and 0 for what has none
    uintptr_t code_begin;
    uintptr_t begin, end;            // the memory of what has no blocks
    uint64_t allocation;             // the number of the one that holds it: addresses are given out again
    bool write;
};
using Works = std::vector<std::shared_ptr<const Work>>;

struct Launch {
    LaunchConfig config;
    int number;
    void (*call)(void*);
    Context context;
    uint64_t blocks;
    unsigned threads;
    uint64_t resident;               // blocks that may be alive at once
    std::vector<uint32_t> block_order;
    std::atomic<uint64_t> next{0}, done{0};
    std::atomic<bool> abort{false};
    std::atomic<bool> out_of_time{false};
    std::atomic<bool> maimed{false};   // a thread was ended for a defect, and the others go on
    std::atomic<uint64_t> grid_arrived{0}, grid_generation{0};
    uint32_t first_serial = 0;       // of this launch's first block
    uint32_t oldest_serial = 0;      // what older blocks touched is ordered before it
    Works unordered;                 // earlier work that may run at the same time, in the order of its blocks
    std::shared_ptr<const Work> predecessor;   // the same, until a block executes griddepcontrol.wait
    std::atomic<bool> waited_for_launch{false};   // a block has executed it
    bool waited_before_barrier = false;           // before the last grid barrier: it then holds for all blocks
    uint32_t grid_epoch = 0;         // accesses of earlier epochs came before the last grid barrier
    uintptr_t code_begin = 0, code_end = 0;   // the submission's machine code
    std::mutex lock;
    std::set<std::string> reported;
    std::vector<RawFinding> findings;
};

extern __thread Worker* this_worker;
inline BlockState* current_block() { return static_cast<BlockState*>(current->block); }
inline uint64_t next_random(uint64_t& state) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

// launch.cpp
void describe_launch(Launch* launch, const LaunchConfig& config, int number, void (*call)(void*),
                     const Context& context);
void execute(Launch* launch);

// fibers.cpp
void prepare_fiber(BlockState* block, Thread* thread);
void recycle_stack(BlockState* block, Thread* thread);
void switch_to_thread(Thread* thread);               // from the scheduler
void switch_between(Thread* from, Thread* to);
[[noreturn]] void leave_to_scheduler();
[[noreturn]] void end_current_thread();
void suspend_to_scheduler(Thread* from);

// schedule.cpp
Thread* pick(BlockState* block);
void yield();
void make_ready(BlockState* block, Thread* thread);
void release_waiting(BlockState* block, State state);
void thread_ended(Thread* thread);
void run_worker(Launch* launch, int number);

// blocks.cpp
BlockState* take_block();
void give_block(BlockState* block);
void begin_block(BlockState* block, Launch* launch, uint64_t number);
void finish_block(BlockState* block);
void flush_async(BlockState* block);
uint32_t new_epoch();
uint32_t upcoming_serial();   // no block that exists has it yet

// barrier.cpp, warp.cpp
void open_cluster(Cluster* cluster);
void barrier_after_exit(BlockState* block);
bool try_warp(BlockState* block, Thread* thread);
bool resolve_active_masks(BlockState* block);
void report_deadlock(BlockState* block);

// signals.cpp
void install_signals();
void restore_signals();
constexpr int kWatchSignal = 34 + 7;   // a real-time signal that nobody else uses

// Records a defect of the running launch; `at` is 0 when `line` is known, and `caller` is the return
// address to try where `at` is in no line of the source. Each kind is recorded once at a place.
void note(Launch* launch, const char* kind, const std::string& message, const Thread* thread, int line,
          uintptr_t at = 0, uintptr_t caller = 0);
// The same for a value that may never be used; repeat.cpp finds out.
void note_value(const char* kind, const std::string& message, const Thread* thread, int line, uintptr_t at = 0);
// The same for two accesses that conflict. `write` says of each whether it writes; the earlier one has an address or a
// line, or neither.
struct OtherAccess {
    uintptr_t at = 0;
    int line = 0;
    bool write = false;
    uintptr_t unless_polled = 0, polled_site = 0;   // as in RawFinding
    uint64_t unless_compared = 0;
};
void note_pair(Launch* launch, const char* kind, const std::string& message, const Thread* thread, int line,
               uintptr_t at, bool write, const OtherAccess& other);
// A write out of bounds that only the memory which it damaged shows: the thread is unknown, and `block` may be null.
void note_damage(Launch* launch, const BlockState* block, const std::string& message);
// `line` if it belongs to the submission's file, else 0.
int submission_line(const char* file, unsigned line);
bool is_pinned(uintptr_t address);   // host memory that cudaMallocHost made visible to kernels
[[noreturn]] void note_and_stop(const char* kind, const std::string& message, int line, uintptr_t at = 0);
std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));
}  // namespace emu
