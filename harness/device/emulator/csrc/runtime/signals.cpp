// Faults of kernels, and the watchdog's interrupts.
#include <signal.h>
#include <ucontext.h>

#include <cstring>

#include "state.h"

// Saves every register, lets other threads run and goes on where the thread was interrupted. The return
// address lies below the 128 bytes of red zone that the interrupted function may be using.
asm(R"(
.text
.type emu_interrupted,@function
emu_interrupted:
  pushfq
  pushq %rax
  pushq %rcx
  pushq %rdx
  pushq %rbx
  pushq %rbp
  pushq %rsi
  pushq %rdi
  pushq %r8
  pushq %r9
  pushq %r10
  pushq %r11
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,%rbx
  subq $512,%rsp
  andq $-16,%rsp
  fxsave (%rsp)
  cld
  call emu_after_interrupt
  fxrstor (%rsp)
  movq %rbx,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %r11
  popq %r10
  popq %r9
  popq %r8
  popq %rdi
  popq %rsi
  popq %rbp
  popq %rbx
  popq %rdx
  popq %rcx
  popq %rax
  popfq
  ret $128
.size emu_interrupted,.-emu_interrupted
)");
extern "C" void emu_interrupted() asm("emu_interrupted");
extern "C" __attribute__((visibility("hidden"))) void emu_after_interrupt() asm("emu_after_interrupt");

extern "C" void emu_after_interrupt() {
    emu::current->preempted = true;
    emu::give_way();
}

namespace emu {
namespace {
const int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, kWatchSignal};
constexpr int kCount = sizeof kSignals / sizeof *kSignals;
struct sigaction before[kCount];

std::string describe_region(uintptr_t address) {
    EmuRegion r;
    if (emu_find_region(address, &r)) {
        return text("byte %td of %s of %zu bytes, %s", ptrdiff_t(address - r.data), called(r).c_str(), r.bytes,
                    address < r.data ? "before its start" : "behind its end");
    }
    if (emu_find_freed(address, &r)) return text("%s of %zu bytes after it was freed", called(r).c_str(), r.bytes);
    return "";
}

std::string describe_shared(uintptr_t address) {
    const BlockState* b = current_block();
    const uintptr_t base = reinterpret_cast<uintptr_t>(b->dynamic);
    const uintptr_t arena = reinterpret_cast<uintptr_t>(b->dynamic_arena);
    if (address < arena || address >= arena + kDynamicArena + kPage) return "";
    return text("byte %zu of the block's dynamic shared memory of %zu bytes, behind its end", size_t(address - base),
                b->dynamic_bytes);
}

struct Fault {
    const char* kind;
    std::string message;
};

Fault describe(int signal, const siginfo_t* info) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
    if (signal == SIGFPE) return {"division_by_zero", "The kernel divides an integer by zero."};
    if (signal == SIGSEGV && info->si_code == SI_KERNEL) {
        return {"out_of_bounds", "The kernel uses an address that no memory can have."};
    }
    if (address < 65536) {
        return {"out_of_bounds", text("The kernel uses a null pointer (offset %zu).", size_t(address))};
    }
    std::string where = describe_region(address);
    if (where.empty()) where = describe_shared(address);
    if (!where.empty()) return {"out_of_bounds", "The kernel accesses " + where + "."};
    return {"out_of_bounds", text("The kernel accesses address 0x%zx, which belongs to no allocation.", size_t(address))};
}

// `caller` is what the stack points to: within a linkage-table entry, the place that called.
[[noreturn]] void stop(const char* kind, const std::string& message, uintptr_t at, uintptr_t caller) {
    Launch* launch = current->block->launch;
    note(launch, kind, message, current, 0, at, caller);
    launch->abort = true;
    // The jump leaves the handler without returning from it, which is what would take its signal off the mask.
    sigset_t watch;
    sigemptyset(&watch);
    sigaddset(&watch, kWatchSignal);
    pthread_sigmask(SIG_UNBLOCK, &watch, nullptr);
    siglongjmp(this_worker->escape, 1);
}

void on_fault(int signal, siginfo_t* info, void* context) {
    if (!this_worker || !current) {   // not a kernel's: the process dies of it as it would without us
        struct sigaction fallback {};
        fallback.sa_handler = SIG_DFL;
        sigaction(signal, &fallback, nullptr);
        return;
    }
    const auto at = uintptr_t(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
    const Fault fault = describe(signal, info);
    stop(fault.kind, fault.message, at + 1, 0);
}

void on_watch(int, siginfo_t*, void* context) {
    if (!this_worker || !current) return;
    Launch* launch = current->block->launch;
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    const auto at = uintptr_t(registers[REG_RIP]);
    // Elsewhere, in malloc or in this library, nothing may be interrupted: the next signal tries again.
    if (at < launch->code_begin || at >= launch->code_end) return;
    if (launch->out_of_time) {
        stop("endless_kernel", text("No block of the kernel ended within %g s: an endless loop, or a wait for something "
                                    "that never happens.", options.timeout), at + 1,
             *reinterpret_cast<const uintptr_t*>(registers[REG_RSP]));
    }
    static thread_local uint64_t seen = 0;
    const uint64_t switches = this_worker->switches.load(std::memory_order_relaxed);
    if (seen != switches) {
        seen = switches;
        return;
    }
    auto* stack = reinterpret_cast<uintptr_t*>(registers[REG_RSP] - 128 - 8);
    *stack = at;
    registers[REG_RSP] = greg_t(reinterpret_cast<uintptr_t>(stack));
    registers[REG_RIP] = greg_t(reinterpret_cast<uintptr_t>(&emu_interrupted));
}
}  // namespace

void install_signals() {
    for (int i = 0; i < kCount; i++) {
        struct sigaction action {};
        action.sa_sigaction = kSignals[i] == kWatchSignal ? on_watch : on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
        // A kernel may fault again after a fault that was noted. The watchdog's signals must not nest: on a busy
        // machine many arrive at once, and each would take its part of the small alternate stack.
        if (kSignals[i] != kWatchSignal) action.sa_flags |= SA_NODEFER;
        sigaction(kSignals[i], &action, &before[i]);
    }
}

void restore_signals() {
    for (int i = 0; i < kCount; i++) {
        // A late watchdog signal would end the process if its default action came back.
        if (kSignals[i] == kWatchSignal) signal(kWatchSignal, SIG_IGN);
        else sigaction(kSignals[i], &before[i], nullptr);
    }
}
}  // namespace emu
