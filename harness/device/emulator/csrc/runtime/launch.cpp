// A launch: the limits of CUDA, the workers, the watchdog, and what becomes of findings.
#include <dlfcn.h>
#include <link.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdarg>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "capture.h"
#include "cuda_state.h"
#include "check.h"
#include "state.h"
#include "streams.h"

namespace emu {
Options options;

std::string text(const char* format, ...) {
    char buffer[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    return buffer;
}

namespace {
Coordinates coordinates(const uint3& v) { return {v.x, v.y, v.z}; }

RawFinding finding_in(const Launch* launch, const char* kind, const std::string& message, int line) {
    RawFinding f;
    f.kind = kind;
    f.message = message;
    f.kernel = launch->config.kernel;
    f.file = launch->config.file;
    f.launch = launch->number;
    f.line = line;
    return f;
}

void by(const Thread* thread, RawFinding* f) {
    if (!thread) return;
    f->block = coordinates(thread->block->index);
    f->thread = coordinates(thread->index);
}

// What follows from a thread that was ended: others wait for it, or read what it has not written.
bool is_consequence(const std::string& kind) {
    return kind == "divergent_barrier" || kind == "bad_shuffle" || kind == "endless_kernel" || kind == "uninitialised_read";
}

// After these the other threads go on, so that one defect does not hide the next. Of fast mode's nothing is left to find
// but by chance.
bool ends_the_thread_alone(const std::string& kind) {
    return options.check && (kind == "out_of_bounds" || kind == "misaligned_access" || kind == "host_pointer" ||
                             kind == "write_to_constant" || kind == "assertion");
}

// One report for each kind and place: the message may differ in numbers from thread to thread.
constexpr size_t kMostFindings = 8;
void add(Launch* launch, const RawFinding& f) {
    std::lock_guard<std::mutex> guard(launch->lock);
    if (launch->maimed && is_consequence(f.kind)) return;
    const std::string key = f.kind + ":" + std::to_string(f.line) + ":" + std::to_string(f.at);
    if (launch->reported.count(key)) return;
    auto& findings = launch->findings;
    if (findings.size() >= kMostFindings) {  // what may turn out to be none gives way to what is a defect for sure
        auto is_unsure = [](const RawFinding& g) { return g.of_value || g.unless_polled || g.unless_compared; };
        const auto least = std::find_if(findings.begin(), findings.end(), is_unsure);
        if (is_unsure(f) || least == findings.end()) return;
        findings.erase(least);
    }
    launch->reported.insert(key);
    findings.push_back(f);
}
}  // namespace

void note(Launch* launch, const char* kind, const std::string& message, const Thread* thread, int line, uintptr_t at,
          uintptr_t caller) {
    RawFinding f = finding_in(launch, kind, message, line);
    f.at = at;
    f.caller = caller;
    by(thread, &f);
    add(launch, f);
}

int submission_line(const char* file, unsigned line) {
    return file && current && !strcmp(file, current->block->launch->config.file) ? int(line) : 0;
}

void note_pair(Launch* launch, const char* kind, const std::string& message, const Thread* thread, int line,
               uintptr_t at, bool write, const OtherAccess& other) {
    RawFinding f = finding_in(launch, kind, message, line);
    f.at = at;
    f.access = write ? "writes" : "reads";
    f.other = other.at;
    f.other_line = other.line;
    f.other_access = other.write ? "wrote" : "read";
    f.unless_polled = other.unless_polled;
    f.polled_site = other.polled_site;
    f.unless_compared = other.unless_compared;
    by(thread, &f);
    add(launch, f);
}

void note_value(const char* kind, const std::string& message, const Thread* thread, int line, uintptr_t at) {
    Launch* launch = thread->block->launch;
    RawFinding f = finding_in(launch, kind, message, line);
    f.at = at;
    f.of_value = true;
    by(thread, &f);
    add(launch, f);
}

void note_damage(Launch* launch, const BlockState* block, const std::string& message) {
    const char* advice = options.check ? "" : " The line is that of the launch; --check finds the access.";
    RawFinding f = finding_in(launch, "out_of_bounds", message + advice, launch->config.line);
    if (block) f.block = coordinates(block->index);
    add(launch, f);
}

void note_and_stop(const char* kind, const std::string& message, int line, uintptr_t at) {
    Launch* launch = current->block->launch;
    note(launch, kind, message, current, line, at);
    if (ends_the_thread_alone(kind)) {
        launch->maimed = true;
        current->returned_early = true;
        end_current_thread();
    }
    launch->abort = true;
    leave_to_scheduler();
}

void fail(const char* kind, int line, const char* format, ...) {
    char buffer[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    if (!current) throw std::runtime_error(std::string("CUDA emulator: ") + buffer);
    const uintptr_t here = line ? 0 : reinterpret_cast<uintptr_t>(__builtin_return_address(0));
    note_and_stop(kind, buffer, line, here);
}

void exceeded_launch_bound(unsigned bound) {
    fail("bad_launch", current->block->launch->config.line, "The kernel was launched with %u threads a block, and its "
         "__launch_bounds__ allow %u; a GPU refuses the launch.", block_threads(), bound);
}

void unsupported(const char* what, int line) {
    fail("unsupported_by_emulator", line, "The emulator cannot execute %s.", what);
}

namespace {
using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kWatchPeriod{2};
std::atomic<int> launch_count{0};

struct Refusal {
    cudaError_t error;
    std::string reason;
};

uint64_t volume(dim3 d) { return uint64_t(d.x) * d.y * d.z; }

Refusal check_shape(const LaunchConfig& c) {
    const dim3 g = c.grid, b = c.block;
    if (!volume(b) || !volume(g)) {
        return {cudaErrorInvalidConfiguration, text("the grid is (%u,%u,%u) and the block (%u,%u,%u), and no dimension "
                                                    "may be zero", g.x, g.y, g.z, b.x, b.y, b.z)};
    }
    if (volume(b) > 1024 || b.x > 1024 || b.y > 1024 || b.z > 64) {
        return {cudaErrorInvalidConfiguration, text("a block of (%u,%u,%u) has %llu threads, and the limits are 1024 "
                                                    "threads and (1024,1024,64)", b.x, b.y, b.z,
                                                    (unsigned long long)volume(b))};
    }
    if (g.x > 2147483647u || g.y > 65535 || g.z > 65535) {
        return {cudaErrorInvalidConfiguration, text("the grid is (%u,%u,%u), and the limits are (2147483647,65535,65535)",
                                                    g.x, g.y, g.z)};
    }
    return {cudaSuccess, ""};
}

Refusal check_shared(const LaunchConfig& c) {
    const size_t limit = dynamic_shared_limit(c.function);
    if (c.shared_bytes <= limit) return {cudaSuccess, ""};
    return {cudaErrorInvalidValue, text("it asks for %zu bytes of dynamic shared memory and may have %zu; raise the limit "
                                        "with cudaFuncSetAttribute, at most to %zu", c.shared_bytes, limit,
                                        kDynamicSharedLimit)};
}

Refusal check_cluster(const LaunchConfig& c) {
    const dim3 g = c.grid, k = c.cluster;
    if (!volume(k) || g.x % k.x || g.y % k.y || g.z % k.z) {
        return {cudaErrorInvalidClusterSize, text("the grid (%u,%u,%u) is not a multiple of the cluster (%u,%u,%u)", g.x,
                                                  g.y, g.z, k.x, k.y, k.z)};
    }
    if (volume(k) > 16) {
        return {cudaErrorInvalidClusterSize, text("a cluster of %llu blocks is larger than 16",
                                                  (unsigned long long)volume(k))};
    }
    return {cudaSuccess, ""};
}

Refusal check_cooperative(const LaunchConfig& c) {
    const uint64_t fit = uint64_t(kMultiprocessors) * blocks_per_multiprocessor(volume(c.block), c.shared_bytes);
    if (!c.cooperative || volume(c.grid) <= fit) return {cudaSuccess, ""};
    return {cudaErrorCooperativeLaunchTooLarge, text("a cooperative grid of %llu blocks cannot be resident at once; %llu "
                                                     "fit", (unsigned long long)volume(c.grid), (unsigned long long)fit)};
}

Refusal check_limits(const LaunchConfig& c) {
    for (auto* check : {check_shape, check_shared, check_cluster, check_cooperative}) {
        Refusal refusal = check(c);
        if (refusal.error != cudaSuccess) return refusal;
    }
    return {cudaSuccess, ""};
}

cudaError_t refuse(const LaunchConfig& c, const Refusal& refusal, int number) {
    RawFinding f;
    f.kind = "bad_launch";
    f.message = text("Kernel %s was not launched (%s): %s.", c.kernel, cudaGetErrorName(refusal.error),
                     refusal.reason.c_str());
    f.kernel = c.kernel;
    f.file = c.file;
    f.line = c.line;
    f.launch = number;
    set_error(refusal.error, &f);
    return refusal.error;
}

// The executable part of the shared object that holds `call`: only there may a thread be interrupted.
void find_code(Launch* launch) {
    struct Search {
        uintptr_t base, begin, end;
    } search{0, 0, 0};
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(launch->call), &info);
    search.base = reinterpret_cast<uintptr_t>(info.dli_fbase);
    dl_iterate_phdr([](dl_phdr_info* image, size_t, void* context) {
        auto* s = static_cast<Search*>(context);
        if (image->dlpi_addr != s->base) return 0;
        for (int i = 0; i < image->dlpi_phnum; i++) {
            const auto& header = image->dlpi_phdr[i];
            if (header.p_type != PT_LOAD || !(header.p_flags & PF_X)) continue;
            s->begin = image->dlpi_addr + header.p_vaddr;
            s->end = s->begin + header.p_memsz;
        }
        return 1;
    }, &search);
    launch->code_begin = search.begin;
    launch->code_end = search.end;
}

// Blocks start in grid order on a GPU, as many as fit. Another order is tried only among those that are
// resident together, since kernels may rely on earlier blocks to make progress.
void order_blocks(Launch* launch) {
    if (options.order == Order::Forward || volume(launch->config.cluster) > 1) return;
    const uint64_t n = launch->blocks, window = std::max<uint64_t>(1, launch->resident / 2);
    launch->block_order.resize(n);
    uint64_t random = options.seed * 0x9E3779B97F4A7C15ull + 99;
    for (uint64_t i = 0; i < n; i++) launch->block_order[i] = uint32_t(i);
    for (uint64_t from = 0; from < n; from += window) {
        auto begin = launch->block_order.begin() + from;
        auto end = launch->block_order.begin() + std::min(n, from + window);
        if (options.order == Order::Reverse) std::reverse(begin, end);
        else for (auto i = end - begin; i > 1; i--) std::swap(begin[i - 1], begin[next_random(random) % i]);
    }
}

// The workers that have not ended.
struct Running {
    std::mutex lock;
    std::condition_variable changed;
    int workers;

    void one_ended() {
        std::lock_guard<std::mutex> guard(lock);
        if (!--workers) changed.notify_all();
    }
    bool all_end_within(std::chrono::microseconds time) {
        std::unique_lock<std::mutex> guard(lock);
        return changed.wait_for(guard, time, [this] { return !workers; });
    }
};

// Threads may wait for one that was ended. What the others have to say, they say soon.
constexpr double kLongestMaimed_s = 1;

// Interrupts workers: now and then those that only poll, for good when the time is over.
void watch(Launch* launch, const std::vector<std::thread*>& threads, Running& running) {
    auto start = Clock::now(), whole = start;
    uint64_t done = 0;
    while (!running.all_end_within(kWatchPeriod)) {
        if (launch->done != done) {   // a large grid takes long and is not endless: the limit is for each step
            done = launch->done;
            start = Clock::now();
        }
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        if (!launch->maimed) whole = Clock::now();
        const bool maimed_long = std::chrono::duration<double>(Clock::now() - whole).count() > kLongestMaimed_s;
        if (seconds > options.timeout || maimed_long) launch->out_of_time = true;
        if (launch->out_of_time && seconds > options.timeout + 5 && !launch->abort) {
            note(launch, "endless_kernel", text("No block of the kernel ended within %g s.", options.timeout), nullptr,
                 launch->config.line);
            launch->abort = true;
        }
        for (std::thread* thread : threads) pthread_kill(thread->native_handle(), kWatchSignal);
    }
}

}  // namespace

void execute(Launch* launch) {
    const int workers = options.check ? 1 : int(std::min<uint64_t>(options.workers, launch->blocks));
    std::vector<std::thread> threads;
    std::vector<std::thread*> handles;
    Running running{.workers = workers};
    install_signals();
    for (int i = 0; i < workers; i++) {
        threads.emplace_back([launch, &running, i] {
            run_worker(launch, i);
            running.one_ended();
        });
    }
    for (auto& thread : threads) handles.push_back(&thread);
    watch(launch, handles, running);
    for (auto& thread : threads) thread.join();
    restore_signals();
}

namespace {
void note_overruns(Launch* launch) {
    Overrun overrun;
    while (find_overrun(&overrun)) {
        const auto& r = overrun.region;
        note_damage(launch, nullptr,
                    text("The kernel wrote %s of %s of %zu bytes (first changed byte: %td).",
                         overrun.offset < 0 ? "before the start" : "behind the end", called(r).c_str(), r.bytes,
                         overrun.offset));
    }
}

// Who reads too early, or what a thread was to write that was ended, reads what is not there; and beside other findings
// nobody has looked whether such a value is used.
void leave_out_consequences(std::vector<RawFinding>* findings) {
    auto of_value = [](const RawFinding& f) { return f.of_value; };
    if (!std::all_of(findings->begin(), findings->end(), of_value)) std::erase_if(*findings, of_value);
}

// Several instructions of a line may have been seen, and a race from both of its sides.
void leave_out_repetitions(std::vector<RawFinding>* findings) {
    std::set<std::string> seen;
    auto at = [](const RawFinding& f, int line, int other) {
        return f.kind + ":" + f.file + ":" + std::to_string(line) + ":" + std::to_string(other);
    };
    std::erase_if(*findings, [&](const RawFinding& f) {
        if (!f.line) return false;
        const bool known = seen.contains(at(f, f.line, 0)) || seen.contains(at(f, f.other_line, f.line));
        seen.insert(at(f, f.line, 0));
        seen.insert(at(f, f.line, f.other_line));
        return known;
    });
}

constexpr size_t kMostNamed = 5;
void report(Launch* launch) {
    if (launch->findings.empty()) return;
    leave_out_consequences(&launch->findings);
    for (RawFinding& f : launch->findings) resolve(f);
    leave_out_repetitions(&launch->findings);
    std::string message = "CUDA emulator: ";
    for (size_t i = 0; i < launch->findings.size(); i++) {
        const RawFinding& f = launch->findings[i];
        keep(f);
        if (i < kMostNamed) message += (i ? "\n  " : "") + sentence(f);
    }
    throw std::runtime_error(message);
}
}  // namespace

void describe_launch(Launch* launch, const LaunchConfig& config, int number, void (*call)(void*),
                     const Context& context) {
    launch->config = config;
    launch->number = number;
    launch->call = call;
    launch->context = context;
    launch->blocks = volume(config.grid);
    launch->threads = unsigned(volume(config.block));
    launch->resident = uint64_t(kMultiprocessors) * blocks_per_multiprocessor(launch->threads, config.shared_bytes);
    order_blocks(launch);
    find_code(launch);
    launch->first_serial = upcoming_serial();
}

namespace {
cudaError_t capture_launch(const LaunchConfig& config, void (*call)(void*), const Context& context) {
    const std::shared_ptr<void> copied(context.copy(context.data), context.drop);
    return capture(config.stream, [=](cudaStream_t where) {
        LaunchConfig own = config;
        own.stream = where;
        return launch(own, call, Context{copied.get(), context.bytes, context.copy, context.drop});
    });
}
}  // namespace

cudaError_t launch(const LaunchConfig& config, void (*call)(void*), const Context& context) {
    if (current) fail("unsupported_by_emulator", config.line, "A kernel launches a kernel; the emulator has no dynamic "
                      "parallelism.");
    raise_unseen_error();
    const int number = ++launch_count;
    require_stream(config.stream, "a launch", &config, number);
    const Refusal refusal = check_limits(config);
    if (refusal.error != cudaSuccess) return refuse(config, refusal, number);
    if (is_captured(config.stream)) return capture_launch(config, call, context);
    Launch run{};
    describe_launch(&run, config, number, call, context);
    if (options.check) check_begin_launch(&run);
    execute(&run);
    if (options.check) end_counts(&run);
    note_overruns(&run);
    if (options.check) drop_compared(&run);
    if (options.check) drop_polled(&run);
    if (options.check) drop_unused_values(&run);
    report(&run);
    return cudaSuccess;
}
}  // namespace emu

extern "C" void emu_configure(int order, uint64_t seed, int workers, int check, double timeout) {
    using namespace emu;
    options.order = static_cast<Order>(order);
    options.seed = seed ? seed : 1;
    options.workers = workers > 0 ? workers : 1;
    options.check = check;
    options.timeout = timeout;
}
