#include "capture.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "../../include/emu/current_stream.h"
#include "cuda_state.h"
#include "findings.h"
#include "memory.h"
#include "state.h"
#include "streams.h"

namespace emu {
namespace {
enum class What : uint8_t { Work, Record, Wait };
struct Recorded {
    What what;
    unsigned branch;   // 0: the stream that the graph is launched in
    Step work;
    size_t event = 0;  // of Record and Wait
};
struct Recording {
    std::vector<Recorded> steps;
    unsigned branches = 1;
    size_t events = 0;
    std::vector<void*> memory;

    Recording() = default;
    Recording(const Recording&) = delete;
    ~Recording();
};

using Known = std::vector<size_t>;   // of each branch, how many pieces of its work come before
struct Capture {
    std::shared_ptr<Recording> recording = std::make_shared<Recording>();
    std::vector<Known> known;   // by branch
    cudaStreamCaptureMode mode;
    std::thread::id thread = std::this_thread::get_id();
    bool is_invalid = false;
};
struct Branch {
    std::shared_ptr<Capture> capture;
    unsigned number;
    bool blocking;
};
struct Place {   // what an event stands for
    std::shared_ptr<Capture> capture;
    size_t event;
    Known known;
};
struct Executable {
    std::shared_ptr<const Recording> recording;
    std::vector<cudaStream_t> streams;   // of the branches but the first

    Executable() = default;
    Executable(const Executable&) = delete;
    ~Executable() {
        for (cudaStream_t stream : streams) (void)cudaStreamDestroy(stream);
    }
};

std::recursive_mutex captures_lock;   // not held while a step is done, nor at calls of streams, which come here
std::map<const void*, Branch> branches;     // by stream
std::map<const void*, Place> places;        // by event
std::map<const void*, std::shared_ptr<const Recording>> graphs;
std::map<const void*, std::shared_ptr<Executable>> executables;
std::map<void*, bool> kept_memory;          // of graphs, and whether its owner has let it go
std::atomic<bool> is_capturing{false};      // `branches` is not empty
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

using Guard = std::lock_guard<std::recursive_mutex>;

Recording::~Recording() {
    const Guard guard(captures_lock);
    for (void* one : memory) {
        const auto own = kept_memory.find(one);
        if (own == kept_memory.end()) continue;
        if (own->second) emu_release(one);
        kept_memory.erase(own);
    }
}

bool is_legacy(const void* stream) { return !stream || stream == cudaStreamLegacy; }

Branch* branch_of(const void* stream) {
    const auto own = branches.find(stream);
    return own == branches.end() ? nullptr : &own->second;
}

bool any_is_blocking() {
    return std::any_of(branches.begin(), branches.end(), [](const auto& one) { return one.second.blocking; });
}

size_t& at(Known& known, unsigned branch) {
    if (known.size() <= branch) known.resize(branch + 1);
    return known[branch];
}

void join(Known& into, const Known& from) {
    for (unsigned i = 0; i < from.size(); i++) at(into, i) = std::max(at(into, i), from[i]);
}

cudaError_t invalidate(Capture& capture, cudaError_t error) {
    capture.is_invalid = true;
    return fail_with(error);
}

template <class Which>
cudaError_t invalidate_all(Which which, cudaError_t error) {
    bool any = false;
    for (auto& [stream, branch] : branches) {
        if (!which(branch)) continue;
        branch.capture->is_invalid = any = true;
    }
    return any ? fail_with(error) : cudaSuccess;
}

bool is_joined(Capture& capture) {
    Known& origin = capture.known[0];
    for (unsigned i = 1; i < capture.known.size(); i++) {
        if (at(origin, i) < at(capture.known[i], i)) return false;
    }
    return true;
}

void end(const std::shared_ptr<Capture>& capture) {
    std::erase_if(branches, [&](const auto& one) { return one.second.capture == capture; });
    std::erase_if(places, [&](const auto& one) { return one.second.capture == capture; });
    is_capturing = !branches.empty();
}

struct Events {   // of one launch of a graph
    std::vector<cudaEvent_t> handles;
    explicit Events(size_t count) : handles(count) {
        for (cudaEvent_t& event : handles) (void)cudaEventCreate(&event);
    }
    ~Events() {
        for (cudaEvent_t event : handles) (void)cudaEventDestroy(event);
    }
};

cudaError_t replay(const Executable& graph, cudaStream_t stream) {
    Events events(graph.recording->events);
    for (const Recorded& step : graph.recording->steps) {
        const cudaStream_t where = step.branch ? graph.streams[step.branch - 1] : stream;
        const cudaError_t error = step.what == What::Work     ? step.work(where)
                                  : step.what == What::Record ? cudaEventRecord(events.handles[step.event], where)
                                                              : cudaStreamWaitEvent(where, events.handles[step.event], 0);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

std::shared_ptr<const Recording> recording_of(cudaGraph_t graph) {
    const Guard guard(captures_lock);
    const auto own = graphs.find(graph);
    return own == graphs.end() ? nullptr : own->second;
}

cudaError_t instantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long flags) {
    if (flags & cudaGraphInstantiateFlagDeviceLaunch) refuse_unsupported("CUDA graphs that kernels launch");
    auto executable = std::make_shared<Executable>();
    executable->recording = recording_of(graph);
    if (!executable->recording) return fail_with(cudaErrorInvalidValue);
    executable->streams.resize(executable->recording->branches - 1);
    for (cudaStream_t& stream : executable->streams) (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    *made = new_handle<cudaGraphExec_t>();
    const Guard guard(captures_lock);
    executables[*made] = std::move(executable);
    return cudaSuccess;
}
}  // namespace

std::string keep_unsupported(const char* what) {
    RawFinding f;
    f.kind = "unsupported_by_emulator";
    f.message = text("The emulator does not support %s.", what);
    keep(f);
    return sentence(f);
}

void refuse_unsupported(const char* what) { throw std::runtime_error("CUDA emulator: " + keep_unsupported(what)); }

bool is_captured(const void* stream) {
    if (!is_capturing) return false;
    const Guard guard(captures_lock);
    return branch_of(stream) || (is_legacy(stream) && any_is_blocking());
}

cudaError_t capture(const void* stream, Step step) {
    const Guard guard(captures_lock);
    const Branch* branch = branch_of(stream);
    if (!branch) return invalidate_all([](const Branch& one) { return one.blocking; }, cudaErrorStreamCaptureImplicit);
    Capture& capture = *branch->capture;
    if (capture.is_invalid) return fail_with(cudaErrorStreamCaptureInvalidated);
    at(capture.known[branch->number], branch->number)++;
    capture.recording->steps.push_back({What::Work, branch->number, std::move(step)});
    return cudaSuccess;
}

cudaError_t may_wait_for(const void* stream) {
    if (!is_captured(stream)) return cudaSuccess;
    const Guard guard(captures_lock);
    if (const Branch* branch = branch_of(stream)) return invalidate(*branch->capture, cudaErrorStreamCaptureUnsupported);
    return invalidate_all([](const Branch& one) { return one.blocking; }, cudaErrorStreamCaptureImplicit);
}

cudaError_t may_wait_for_event(cudaEvent_t event) {
    if (!is_capturing) return cudaSuccess;
    const Guard guard(captures_lock);
    const auto own = places.find(event);
    return own == places.end() ? cudaSuccess : invalidate(*own->second.capture, cudaErrorCapturedEvent);
}

cudaError_t may_wait_for_all() {
    if (!is_capturing) return cudaSuccess;
    const Guard guard(captures_lock);
    return invalidate_all([](const Branch&) { return true; }, cudaErrorStreamCaptureUnsupported);
}

cudaError_t may_call_unsafe() {
    if (!is_capturing || thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
    const Guard guard(captures_lock);
    auto is_disturbed = [](const Branch& one) {
        const bool from_anywhere = one.capture->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
        const bool own = one.capture->thread == std::this_thread::get_id();
        return from_anywhere || (own && one.capture->mode != cudaStreamCaptureModeRelaxed);
    };
    return invalidate_all(is_disturbed, cudaErrorStreamCaptureUnsupported);
}

cudaError_t capture_event(cudaEvent_t event, const void* stream) {
    const Guard guard(captures_lock);
    const Branch* branch = branch_of(stream);
    if (!branch) return capture(stream, {});   // the legacy stream's error
    Capture& capture = *branch->capture;
    if (capture.is_invalid) return fail_with(cudaErrorStreamCaptureInvalidated);
    const size_t number = capture.recording->events++;
    capture.recording->steps.push_back({What::Record, branch->number, {}, number});
    places[event] = Place{branch->capture, number, capture.known[branch->number]};
    return cudaSuccess;
}

void forget_captured(cudaEvent_t event) {
    if (!is_capturing) return;
    const Guard guard(captures_lock);
    places.erase(event);
}

std::optional<cudaError_t> capture_wait(const void* stream, cudaEvent_t event, bool recorded) {
    if (!is_capturing) return {};
    const bool blocking = is_blocking(stream);
    const Guard guard(captures_lock);
    const Branch* own = branch_of(stream);
    const auto place = places.find(event);
    if (place == places.end()) {
        if (!own || !recorded) return {};
        return invalidate(*own->capture, cudaErrorStreamCaptureIsolation);
    }
    const std::shared_ptr<Capture> capture = place->second.capture;
    if (capture->is_invalid) return fail_with(cudaErrorStreamCaptureInvalidated);
    if (is_legacy(stream)) return invalidate(*capture, cudaErrorStreamCaptureImplicit);
    if (own && own->capture != capture) {
        own->capture->is_invalid = true;
        return invalidate(*capture, cudaErrorStreamCaptureMerge);
    }
    if (!own) {   // the stream joins the capture
        own = &(branches[stream] = Branch{capture, capture->recording->branches++, blocking});
        capture->known.emplace_back();
    }
    join(capture->known[own->number], place->second.known);
    capture->recording->steps.push_back({What::Wait, own->number, {}, place->second.event});
    return cudaSuccess;
}
}  // namespace emu

using namespace emu;

extern "C" {
int emu_is_capturing() { return is_captured(emu_current_stream()); }

void emu_keep_for_graph(void* memory) {
    if (!is_capturing) return;
    const Guard guard(captures_lock);
    const Branch* branch = branch_of(emu_current_stream());
    if (!branch || !kept_memory.try_emplace(memory, false).second) return;
    branch->capture->recording->memory.push_back(memory);
}

int emu_let_go(void* memory) {
    {
        const Guard guard(captures_lock);
        const auto own = kept_memory.find(memory);
        if (own != kept_memory.end()) return own->second = true;
    }
    return emu_release(memory);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    raise_unseen_error();
    require_stream(stream, "cudaStreamBeginCapture");
    if (is_legacy(stream)) return fail_with(cudaErrorStreamCaptureUnsupported);
    const bool blocking = is_blocking(stream);
    const Guard guard(captures_lock);
    if (branch_of(stream)) return fail_with(cudaErrorIllegalState);
    auto capture = std::make_shared<Capture>();
    capture->mode = mode;
    capture->known.emplace_back();
    branches[stream] = Branch{std::move(capture), 0, blocking};
    is_capturing = true;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    raise_unseen_error();
    require_stream(stream, "cudaStreamEndCapture");
    *graph = nullptr;
    const Guard guard(captures_lock);
    const Branch* branch = branch_of(stream);
    if (!branch) return fail_with(cudaErrorIllegalState);
    if (branch->number) return invalidate(*branch->capture, cudaErrorStreamCaptureUnmatched);
    const std::shared_ptr<Capture> capture = branch->capture;
    end(capture);
    if (capture->is_invalid) return fail_with(cudaErrorStreamCaptureInvalidated);
    if (!is_joined(*capture)) return fail_with(cudaErrorStreamCaptureUnjoined);
    *graph = new_handle<cudaGraph_t>();
    graphs[*graph] = capture->recording;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    require_stream(stream, "cudaStreamIsCapturing");
    *status = cudaStreamCaptureStatusNone;
    const Guard guard(captures_lock);
    const Branch* branch = branch_of(stream);
    if (!branch && is_legacy(stream) && any_is_blocking()) return fail_with(cudaErrorStreamCaptureImplicit);
    if (branch) *status = branch->capture->is_invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    std::swap(*mode, thread_mode);
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long flags) {
    return instantiate(made, graph, flags);
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long flags) {
    return instantiate(made, graph, flags);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream) {
    raise_unseen_error();
    require_stream(stream, "cudaGraphLaunch");
    std::shared_ptr<Executable> graph;
    {
        const Guard guard(captures_lock);
        const auto own = executables.find(handle);
        if (own != executables.end()) graph = own->second;
    }
    if (!graph) return fail_with(cudaErrorInvalidValue);
    if (is_captured(stream)) return capture(stream, [graph](cudaStream_t where) { return replay(*graph, where); });
    return replay(*graph, stream);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
    std::shared_ptr<Executable> last;   // its streams are given up without the lock
    const Guard guard(captures_lock);
    const auto own = executables.find(handle);
    if (own == executables.end()) return fail_with(cudaErrorInvalidValue);
    last = std::move(own->second);
    executables.erase(own);
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
    const Guard guard(captures_lock);
    return graphs.erase(handle) ? cudaSuccess : fail_with(cudaErrorInvalidValue);
}
}

// For Python, which no exception may reach: a sentence, or nullptr where all went well.
namespace {
template <class Call>
const char* said_by(Call call) {
    static thread_local std::string said;
    try {
        const cudaError_t error = call();
        if (error == cudaSuccess) return nullptr;
        cudaGetLastError();
        said = text("CUDA error: %s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
    } catch (const std::exception& error) {
        said = error.what();
    }
    return said.c_str();
}
}  // namespace

extern "C" {
const char* emu_wait() { return said_by(cudaDeviceSynchronize); }
const char* emu_begin_capture(int mode) {
    return said_by([mode] {
        return cudaStreamBeginCapture(static_cast<cudaStream_t>(emu_current_stream()), cudaStreamCaptureMode(mode));
    });
}
const char* emu_end_capture(void* stream, cudaGraphExec_t* made) {
    return said_by([=] {
        cudaGraph_t graph;
        if (const cudaError_t error = cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &graph)) return error;
        const cudaError_t error = instantiate(made, graph, 0);
        cudaGraphDestroy(graph);
        return error;
    });
}
const char* emu_launch_graph(cudaGraphExec_t graph) {
    return said_by([graph] { return cudaGraphLaunch(graph, static_cast<cudaStream_t>(emu_current_stream())); });
}
}
