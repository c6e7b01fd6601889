// The services the runtime library gives to compiled kernels.
#pragma once
#include "thread.h"

namespace emu {
struct LaunchConfig {
    dim3 grid, block;
    size_t shared_bytes;
    const void* stream;
    const char* kernel;
    const char* file;
    int line;
    const void* function;   // for attributes set by cudaFuncSetAttribute; may be null
    bool cooperative;
    dim3 cluster;
    bool raises;  // false: an impossible launch is a return value, as for the cudaLaunch functions
    bool early = false;     // may begin before the launch before it has ended (programmatic dependent launch)
};

enum class Reduce : uint8_t { None, Count, And, Or };

struct Context {   // what a kernel is called with
    void* data;
    size_t bytes;
    void* (*copy)(const void* data);   // for a launch that a CUDA graph repeats
    void (*drop)(void* copied);
};

// The name of a kernel that is launched by the name `written`.
const char* kernel_name(const char* written, const void* function);
// Runs the grid to its end, or keeps the launch where its stream is captured. Throws std::runtime_error when the kernel
// has a defect.
cudaError_t launch(const LaunchConfig& config, void (*call)(void*), const Context& context);
// Throws when `argument`, the number-th of the kernel, points into memory that a GPU cannot see.
void check_pointer(const LaunchConfig& config, unsigned number, const volatile void* argument);
// Throws when a launch was refused and nobody has looked at the error since.
void raise_unseen_error();

int block_barrier(int line, Reduce kind, int predicate);
void named_barrier(unsigned id, unsigned threads, bool wait, int line);
void grid_barrier(int line);
void cluster_arrive(int line);
void cluster_wait(int line);
void warp_operation(WarpOp op, uint32_t mask, int source, unsigned bytes, int line);
void* shared_variable(const void* key, size_t bytes, size_t align);
bool is_cooperative();
void* map_to_peer(void* shared, unsigned rank, int line);   // the same variable in another block of the cluster
uint32_t shared_window(const void* pointer);   // as PTX addresses shared memory
void* from_shared_window(uint32_t address);
enum class Scope : uint8_t { Block, Device };   // what an atomic reaches; the system is one device here
void before_atomic(const volatile void* address, size_t bytes, int line, Scope scope = Scope::Device);
void before_atomic_load(const volatile void* address, size_t bytes, int line, Scope scope = Scope::Device);
void before_volatile(const volatile void* address, size_t bytes, bool write, int line);
void before_strong(const volatile void* address, size_t bytes, bool write, int line);   // relaxed, acquire, release
void before_compare(const volatile void* address, size_t bytes, int line, Scope scope);    // compares and swaps
void before_exchange(const volatile void* address, size_t bytes, int line, Scope scope);   // needs no earlier value
void narrow_atomics(bool narrow);   // whether C++ atomics of the running thread have the scope of its block
void access_hint(const void* address, size_t bytes, bool write, int line);  // a range the compiler's hooks do not see
void access_range(const void* address, size_t bytes, bool write, int line);  // the same of any size, if a kernel runs
void early_return();     // stands at every return statement of a kernel
void wait_for_earlier_launch();   // griddepcontrol.wait
void fence(bool of_device);   // __threadfence(), or the one that reaches the own block only
void give_way();         // called where real code waits for another thread
uint64_t clock_ticks();

// Copies that happen when they are waited for, in groups of the thread that made them.
void async_copy(void* to, const void* from, size_t bytes, size_t zeros, int line);
void async_commit();
void async_wait(size_t groups_left);
void async_wait_all();
void bulk_copy_to_shared(void* to, const void* from, size_t bytes, void* barrier, int line);
void bulk_copy_to_global(void* to, const void* from, size_t bytes, int line);
void mbarrier_init(void* address, uint32_t count, int line);
void mbarrier_invalidate(void* address, int line);
// `relaxed`: what the thread wrote before is not ordered by it for other blocks, unless by a fence.
uint64_t mbarrier_arrive(void* address, uint32_t count, int64_t bytes, int line, bool relaxed = false);
void mbarrier_expect(void* address, int64_t bytes, int line);
bool mbarrier_passed(void* address, uint64_t phase, int line);
bool mbarrier_parity_passed(void* address, uint32_t parity, int line);

[[noreturn]] void exceeded_launch_bound(unsigned bound);
// The first statement of a kernel with __launch_bounds__.
inline void launch_bound(unsigned bound, unsigned = 0, unsigned = 0) {
    if (block_threads() > bound) exceeded_launch_bound(bound);
}

[[noreturn]] void fail(const char* kind, int line, const char* format, ...) __attribute__((format(printf, 3, 4)));
[[noreturn]] void unsupported(const char* what, int line);

template <class Tag>
struct SharedKey {
    static char key;
};
template <class Tag>
char SharedKey<Tag>::key;

// `Tag` is a local struct with the variable as its member: one type, hence one variable, for each instance
// of a template.
template <class Tag>
inline Tag& shared() {
    return *reinterpret_cast<Tag*>(shared_variable(&SharedKey<Tag>::key, sizeof(Tag), alignof(Tag)));
}
}  // namespace emu
