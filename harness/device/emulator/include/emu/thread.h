// What a kernel sees of the thread it runs as, and the built-in variables on top of it.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace emu {
struct Launch;

enum class State : uint8_t { Fresh, Ready, AtBarrier, AtWarpOp, AtGridBarrier, AtClusterBarrier, AtNamed, Done };
enum class WarpOp : uint8_t { Sync, Shuffle, Ballot, Match, Active };

// The head of the runtime's block, as far as kernels look at it.
struct Block {
    uint3 index;
    dim3 size, grid;
    Launch* launch;
    char* dynamic;      // dynamic shared memory
    size_t dynamic_bytes;
    dim3 cluster;       // blocks of one cluster in each direction
    Block** peers;      // the blocks of this cluster by rank; nullptr without clusters
    unsigned cluster_rank;
};
// To the compiler it is aligned to nothing: kernels look at it all the time, and each look would be checked.
using LooseBlock __attribute__((aligned(1))) = Block;

// One CUDA thread: a fiber. The members above the line are read by kernels, those below by the runtime.
struct Thread {
    uint3 index;
    unsigned rank;  // linear index in the block
    unsigned warp, lane;
    LooseBlock* block;
    // ----
    void* stack_pointer;
    char* stack;
    State state;
    WarpOp op;
    int line;           // of the operation it waits in
    uint32_t mask;      // lanes named by the warp operation
    int source;         // lane a shuffle reads
    unsigned bytes;     // a shuffle moves
    uint64_t in[2], out[2];
    uint32_t warp_epoch;  // warp operations that ordered this thread's accesses so far
    bool returned_early;  // left through a return statement, which CUDA allows before a barrier
    uint64_t cluster_token;  // generation of the cluster's barrier at the last arrival
    bool fenced;          // executed __threadfence() and has not written since
    uintptr_t last_atomic;  // address of the last atomic operation
    uintptr_t last_volatile;   // address of the last volatile read
    struct {
        uintptr_t address, site;
    } recent[4];          // the last volatile reads that no volatile write stands behind
    bool narrow_atomics;  // its C++ atomics have the scope of its block
    bool preempted;       // was interrupted in a loop that waits for others
};

using LooseThread __attribute__((aligned(1))) = Thread;   // as LooseBlock

// initial-exec: read many times by every kernel, and the library is loaded early enough for static TLS.
extern __thread LooseThread* current __attribute__((tls_model("initial-exec"), visibility("default")));

inline void* dynamic_shared() { return current->block->dynamic; }
inline unsigned block_threads() {
    const dim3 d = current->block->size;
    return d.x * d.y * d.z;
}
inline unsigned live_lanes() {  // lanes that exist in this thread's warp
    const unsigned left = block_threads() - current->warp * 32;
    return left >= 32 ? 0xFFFFFFFFu : (1u << left) - 1;
}
// blockDim and gridDim are also members of cudaLaunchConfig_t, so that no macro can stand for them: the
// translator writes these calls.
inline dim3 block_dim() { return current->block->size; }
inline dim3 grid_dim() { return current->block->grid; }
}  // namespace emu

#define threadIdx (::emu::current->index)
#define blockIdx (::emu::current->block->index)
static constexpr int warpSize = 32;

// Last parameter of everything that may fail: the caller's own line, which #line makes the submission's. Types of
// its own, since a number that is given would be taken for the line.
namespace emu {
enum class LineNumber : int {};
struct Line {
    int number;
    constexpr Line(LineNumber n) : number(static_cast<int>(n)) {}  // implicit, for the default argument
    constexpr explicit Line(int n) : number(n) {}
    constexpr operator int() const { return number; }
};
}  // namespace emu
#define EMU_LINE ::emu::Line emu_line = static_cast<::emu::LineNumber>(__builtin_LINE())  // not by a call
