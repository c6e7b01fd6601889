// Threads of a block are fibers: a stack each, and a switch that saves what the ABI asks to be preserved.
#include <sys/mman.h>

#include <exception>
#include <new>

#include "state.h"

asm(R"(
.text
.type emu_switch,@function
emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emu_switch,.-emu_switch
)");
extern "C" void emu_switch(void** save, void* to) asm("emu_switch");

namespace emu {
__thread Thread* current = nullptr;
__thread Worker* this_worker = nullptr;

namespace {
constexpr uint64_t kCanary = 0x5afe57acca5c0de5ull;
constexpr size_t kStacksPerMapping = 32;
// From one stack to the next: an odd number of cache lines more than a stack has, for what all of them use at their tops
// would share a few sets of the cache.
constexpr size_t kStackStride = kStackBytes + 5 * 64;

uint64_t& canary(char* stack) { return *reinterpret_cast<uint64_t*>(stack); }

void more_stacks(BlockState* block) {
    const size_t bytes = kStacksPerMapping * kStackStride;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    for (size_t i = kStacksPerMapping; i--;) block->free_stacks.push_back(static_cast<char*>(memory) + i * kStackStride);
}

void fiber_main() {
    Launch* launch = current->block->launch;
    try {
        launch->call(launch->context.data);
    } catch (const std::exception& e) {
        fail("host_code_in_kernel", 0, "A C++ exception left the kernel: %s.", e.what());
    }
    if (canary(current->stack) != kCanary) {
        fail("stack_overflow", 0, "The thread's local variables need more than %zu KB of stack.", kStackBytes >> 10);
    }
    end_current_thread();
}
}  // namespace

void end_current_thread() {
    thread_ended(current);
    current_block()->retiring = current;
    leave_to_scheduler();
}

void prepare_fiber(BlockState* block, Thread* thread) {
    if (block->free_stacks.empty()) more_stacks(block);
    thread->stack = block->free_stacks.back();
    block->free_stacks.pop_back();
    canary(thread->stack) = kCanary;
    void** top = reinterpret_cast<void**>(thread->stack + kStackBytes);
    // At entry of a function rsp % 16 is 8: three words of padding, the address to return to, six registers.
    for (int i = 0; i < 3; i++) *--top = nullptr;
    *--top = reinterpret_cast<void*>(&fiber_main);
    for (int i = 0; i < 6; i++) *--top = nullptr;
    thread->stack_pointer = top;
}

void recycle_stack(BlockState* block, Thread* thread) {
    if (!thread->stack) return;
    block->free_stacks.push_back(thread->stack);
    thread->stack = nullptr;
}

void switch_to_thread(Thread* thread) {
    current = thread;
    this_worker->switches.store(this_worker->switches.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    emu_switch(&this_worker->stack_pointer, thread->stack_pointer);
    current = nullptr;
}

void switch_between(Thread* from, Thread* to) {
    current = to;
    this_worker->switches.store(this_worker->switches.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    emu_switch(&from->stack_pointer, to->stack_pointer);
}

void suspend_to_scheduler(Thread* from) { emu_switch(&from->stack_pointer, this_worker->stack_pointer); }

void leave_to_scheduler() {
    void* nowhere;
    emu_switch(&nowhere, this_worker->stack_pointer);
    __builtin_unreachable();
}
}  // namespace emu
