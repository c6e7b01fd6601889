// Work is done when the call that asks for it returns, in the order in which the host asks. What a GPU may do at the
// same time follows from vector clocks (Fidge 1988, Mattern 1989): each stream, each event and the host know how much of
// each stream has ended before them, and work is ordered behind other work if its stream knew of it.
#include "streams.h"

#include <sys/time.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "capture.h"
#include "check.h"
#include "cuda_state.h"

namespace emu {
namespace {
using Clock = std::map<uint32_t, uint64_t>;   // for each stream, how many pieces of its work have ended

struct Stream {
    uint32_t number;
    bool blocking;              // waits for the legacy stream, and the legacy stream for it
    uint64_t issued = 0;
    Clock clock;
    std::shared_ptr<const Work> last;   // a launch, if nothing else came after it
};
struct Event {
    double recorded_ms = 0;   // 0 before the first record
    Clock clock;
};

constexpr int kPoolStreams = 32;   // c10/cuda/CUDAStream.cpp
std::recursive_mutex lock;
Stream legacy{0, false, 0, {}, {}}, per_thread{1, true, 0, {}, {}};
std::map<const void*, std::unique_ptr<Stream>> created;
std::map<const void*, std::unique_ptr<Event>> events;
uint32_t next_number = 2;
bool several = false;              // a second stream has been asked for
Clock host;
std::map<uint32_t, std::deque<std::shared_ptr<const Work>>> works;   // by stream, in order: work that the host has not waited for
std::vector<void*> pool;
size_t next_in_pool = 0;
thread_local void* current_stream = nullptr;

void join(Clock& into, const Clock& from) {
    for (const auto& [stream, turn] : from) into[stream] = std::max(into[stream], turn);
}

uint64_t turn_in(const Clock& clock, uint32_t stream) {
    const auto own = clock.find(stream);
    return own == clock.end() ? 0 : own->second;
}

bool knows(const Clock& clock, const Work& work) { return turn_in(clock, work.stream) >= work.turn; }

Stream* find(const void* handle) {
    if (!handle || handle == cudaStreamLegacy) return &legacy;
    if (handle == cudaStreamPerThread) {
        several = true;
        return &per_thread;
    }
    const auto own = created.find(handle);
    return own == created.end() ? nullptr : own->second.get();
}

// The order that CUDA makes by itself: behind what the host has waited for, and that of the legacy stream.
Stream& caught_up(Stream& stream) {
    join(stream.clock, host);
    if (&stream == &legacy) {
        join(stream.clock, per_thread.clock);
        for (const auto& [handle, other] : created) {
            if (other->blocking) join(stream.clock, other->clock);
        }
    } else if (stream.blocking) {
        join(stream.clock, legacy.clock);
    }
    return stream;
}

std::shared_ptr<const Work> issue(Stream& stream, Work work) {
    work.stream = stream.number;
    work.turn = stream.clock[stream.number] = ++stream.issued;
    auto issued = std::make_shared<const Work>(std::move(work));
    if (several) works[stream.number].push_back(issued);
    return issued;
}

// What `clock` does not know of, in the order of its blocks.
Works unknown(const Clock& clock) {
    Works found;
    for (const auto& [stream, own] : works) {
        const uint64_t turn = turn_in(clock, stream);
        auto is_known = [turn](const auto& work) { return work->turn <= turn; };
        found.insert(found.end(), std::partition_point(own.begin(), own.end(), is_known), own.end());
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a->first_serial < b->first_serial; });
    return found;
}

void forget_what_the_host_knows() {
    for (auto own = works.begin(); own != works.end();) {
        auto& [stream, list] = *own;
        while (!list.empty() && knows(host, *list.front())) list.pop_front();
        own = list.empty() ? works.erase(own) : std::next(own);
    }
}

bool overlap(const Work& work, uint64_t allocation, uintptr_t address, size_t bytes) {
    return work.allocation == allocation && address < work.end && work.begin < address + bytes;
}

double now_ms() {
    timeval t;
    gettimeofday(&t, nullptr);
    return double(t.tv_sec) * 1e3 + double(t.tv_usec) * 1e-3;
}

// On an H200 a program that launched in a destroyed stream and waited for it was ended by that: the error that CUDA has
// for it may not come.
RawFinding no_such(const char* what, const char* call) {
    RawFinding f;
    f.kind = "bad_handle";
    f.message = text("A stale handle: %s is given %s that does not exist, or does no longer. A GPU's driver may follow it to "
                     "memory that has been freed, and end the process.", call, what);
    return f;
}

[[noreturn]] void refuse(const RawFinding& f) {
    keep(f);
    throw std::runtime_error("CUDA emulator: " + sentence(f));
}

Event& as_event(cudaEvent_t event, const char* call) {
    const auto own = events.find(event);
    if (own == events.end()) refuse(no_such("an event", call));
    return *own->second;
}

cudaError_t create(cudaStream_t* stream, bool blocking) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    *stream = new_handle<cudaStream_t>();
    created[*stream] = std::make_unique<Stream>(Stream{next_number++, blocking, 0, {}, {}});
    several = true;
    return cudaSuccess;
}

void wait_for_all() {
    std::lock_guard<std::recursive_mutex> guard(lock);
    auto forget = [](Stream& stream) {
        stream.clock.clear();
        stream.last.reset();
    };
    forget(legacy);
    forget(per_thread);
    for (const auto& [handle, stream] : created) forget(*stream);
    host.clear();
    works.clear();
}
}  // namespace

void require_stream(const void* handle, const char* call, const LaunchConfig* where, int launch) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (find(handle)) return;
    RawFinding f = no_such("a stream", call);
    if (where) {
        f.kernel = where->kernel;
        f.file = where->file;
        f.line = where->line;
        f.launch = launch;
    }
    refuse(f);
}

bool keeps_touches(const Launch* launch) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    return launch->config.early || !works.empty();
}

void order_launch(Launch* launch) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    Stream& stream = caught_up(*find(launch->config.stream));
    launch->unordered = unknown(stream.clock);
    if (launch->config.early && stream.last && !knows(host, *stream.last)) launch->predecessor = stream.last;
    launch->oldest_serial = launch->first_serial;
    for (const auto& work : launch->unordered) {
        if (work->last_serial) launch->oldest_serial = std::min(launch->oldest_serial, work->first_serial);
    }
    if (launch->predecessor) launch->oldest_serial = std::min(launch->oldest_serial, launch->predecessor->first_serial);
    Work own{};
    own.what = launch->config.kernel;
    own.file = launch->config.file;
    own.line = launch->config.line;
    own.launch = launch->number;
    own.first_serial = launch->first_serial;
    own.last_serial = uint32_t(launch->first_serial + launch->blocks);
    own.code_begin = launch->code_begin;
    stream.last = issue(stream, own);
}

const Work* work_of(const Works& works, uint32_t serial) {
    const auto after = std::upper_bound(works.begin(), works.end(), serial,
                                        [](uint32_t block, const auto& work) { return block < work->first_serial; });
    if (after == works.begin()) return nullptr;
    const Work& work = **std::prev(after);
    return serial < work.last_serial ? &work : nullptr;
}

const Work* unordered_work(uint32_t serial) {
    const BlockState* block = current_block();
    const Launch* launch = block->launch;
    const Work* before = launch->predecessor.get();
    if (before && serial >= before->first_serial && serial < before->last_serial) {
        return block->waited_for_launch || launch->waited_before_barrier ? nullptr : before;
    }
    return work_of(launch->unordered, serial);
}

Works unordered_copies(const Launch* launch, uint64_t allocation) {
    Works found;
    std::copy_if(launch->unordered.begin(), launch->unordered.end(), std::back_inserter(found),
                 [allocation](const auto& work) { return !work->last_serial && work->allocation == allocation; });
    return found;
}

void check_against_copies(const Works& copies, const Access& access) {
    for (const auto& work : copies) {
        if (!overlap(*work, work->allocation, access.address, access.bytes) || !(access.write || work->write)) continue;
        note(current->block->launch, "data_race",
             text("Data race between streams: this thread %s what %s %s, and nothing makes the launch wait for that.",
                  access.write ? "writes" : "reads", work->what.c_str(), work->write ? "writes" : "reads"),
             current, access.line, access.pc);
    }
}

namespace {
// Which of `others` touches these bytes so that the order matters.
Toucher conflicting(const Works& others, const EmuRegion& region, uintptr_t address, size_t bytes, bool write) {
    auto has_blocks = [](const auto& work) { return work->last_serial; };
    const auto launches = std::find_if(others.begin(), others.end(), has_blocks);   // copies come first
    const Toucher kernel = touched_by({launches, others.end()}, region, address, bytes, write);
    if (kernel.work) return kernel;
    const auto copy = std::find_if(others.begin(), launches, [&](const auto& work) {
        return overlap(*work, region.number, address, bytes) && (write || work->write);
    });
    if (copy == launches) return {};
    return {copy->get(), (*copy)->write};
}

RawFinding race_with(const Toucher& other, const char* what, bool write) {
    const Work& work = *other.work;
    RawFinding f;
    f.kind = "data_race";
    f.message = text("Data race between streams: %s %s what %s may still be %s, and nothing makes it wait for that.",
                     what, write ? "writes" : "reads", work.last_serial ? "the kernel" : work.what.c_str(),
                     other.wrote ? "writing" : "reading");
    if (work.last_serial) f.kernel = work.what;
    f.file = work.file;
    f.line = work.line;
    f.launch = work.launch;
    return f;
}
}  // namespace

bool access_in_stream(cudaStream_t handle, const char* what, const void* address, size_t bytes, bool write,
                      std::string* said) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    Stream* found = find(handle);
    if (!found || !options.check) return false;
    found->last.reset();   // a launch behind it waits for it, and for what came before, in any case
    EmuRegion region;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(address);
    if (!several || !bytes || !region_of(begin, &region)) return false;
    Stream& stream = caught_up(*found);
    const Toucher other = conflicting(unknown(stream.clock), region, begin, bytes, write);
    if (other.work) {
        const RawFinding f = race_with(other, what, write);
        keep(f);
        *said = sentence(f);
    }
    Work own{};
    own.what = what;
    own.begin = begin;
    own.end = begin + bytes;
    own.allocation = region.number;
    own.write = write;
    issue(stream, own);
    return other.work;
}

void wait_for_stream(cudaStream_t handle) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (Stream* stream = find(handle)) join(host, caught_up(*stream).clock);
    forget_what_the_host_knows();
}

bool is_blocking(const void* handle) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    const Stream* stream = find(handle);
    return stream && stream != &legacy && stream->blocking;
}

void wait_for_earlier_launch() { current_block()->waited_for_launch = current_block()->launch->waited_for_launch = true; }
}  // namespace emu

using namespace emu;

extern "C" {
void* emu_current_stream() { return current_stream; }
void emu_set_current_stream(void* stream) { current_stream = stream; }
void* emu_pool_stream() {
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (pool.size() < kPoolStreams) {
        cudaStream_t stream;
        create(&stream, false);
        pool.push_back(stream);
        return stream;
    }
    return pool[next_in_pool++ % kPoolStreams];
}
void emu_wait_for_current_stream() { wait_for_stream(static_cast<cudaStream_t>(current_stream)); }
void emu_wait_for_device() { wait_for_all(); }
const char* emu_access(const char* what, const void* address, size_t bytes, int write) {
    static thread_local std::string said;
    const auto stream = static_cast<cudaStream_t>(current_stream);
    return access_in_stream(stream, what, address, bytes, write, &said) ? said.c_str() : nullptr;
}

cudaError_t cudaDeviceSynchronize() {
    raise_unseen_error();
    if (const cudaError_t error = may_wait_for_all()) return error;
    wait_for_all();
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    raise_unseen_error();
    require_stream(stream, "cudaStreamSynchronize");
    if (const cudaError_t error = may_wait_for(stream)) return error;
    wait_for_stream(stream);
    return cudaSuccess;
}
// Whoever is told that all is done may rely on it.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    require_stream(stream, "cudaStreamQuery");
    if (const cudaError_t error = may_wait_for(stream)) return error;
    wait_for_stream(stream);
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return create(stream, true); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return create(stream, !(flags & cudaStreamNonBlocking));
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
    return cudaStreamCreateWithFlags(stream, flags);
}
// The work of a stream that is given up goes on: the legacy stream waits for it as before.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    const auto own = created.find(handle);
    if (own == created.end()) {   // without an exception: destructors call this
        keep(no_such("a stream", "cudaStreamDestroy"));
        return fail_with(cudaErrorInvalidResourceHandle);
    }
    if (own->second->blocking) join(legacy.clock, own->second->clock);
    created.erase(own);
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
    if (flags & cudaEventWaitExternal && is_captured(handle)) refuse_unsupported("cudaEventWaitExternal in a captured stream");
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (!event) return fail_with(cudaErrorInvalidResourceHandle);
    require_stream(handle, "cudaStreamWaitEvent");
    const Event& awaited = as_event(event, "cudaStreamWaitEvent");
    if (const auto captured = capture_wait(handle, event, awaited.recorded_ms > 0)) return *captured;
    join(find(handle)->clock, awaited.clock);
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = *greatest = 0;
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    *event = new_handle<cudaEvent_t>();
    events[*event] = std::make_unique<Event>();
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    forget_captured(event);
    if (events.erase(event)) return cudaSuccess;
    if (event) keep(no_such("an event", "cudaEventDestroy"));
    return fail_with(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (!event) return fail_with(cudaErrorInvalidResourceHandle);
    require_stream(handle, "cudaEventRecord");
    Event& recorded = as_event(event, "cudaEventRecord");
    if (is_captured(handle)) return capture_event(event, handle);
    forget_captured(event);
    recorded.clock = caught_up(*find(handle)).clock;
    recorded.recorded_ms = now_ms();
    return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    if (flags & cudaEventRecordExternal && is_captured(stream)) refuse_unsupported("cudaEventRecordExternal in a captured stream");
    return cudaEventRecord(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (!event) return fail_with(cudaErrorInvalidResourceHandle);
    const Event& awaited = as_event(event, "cudaEventSynchronize");
    if (const cudaError_t error = may_wait_for_event(event)) return error;
    join(host, awaited.clock);
    forget_what_the_host_knows();
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
    if (!from || !to) return fail_with(cudaErrorInvalidResourceHandle);
    std::lock_guard<std::recursive_mutex> guard(lock);
    const char* call = "cudaEventElapsedTime";
    for (cudaEvent_t event : {from, to}) {
        if (const cudaError_t error = may_wait_for_event(event)) return error;
    }
    *ms = float(as_event(to, call).recorded_ms - as_event(from, call).recorded_ms);
    return cudaSuccess;
}
}  // extern "C"
