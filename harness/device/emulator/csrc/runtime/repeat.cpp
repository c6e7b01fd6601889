// Whether what nobody has written was used: the launch runs again with other values in its place, from the same memory,
// and must leave the same results. A value that is read and dropped changes nothing.
#include <algorithm>
#include <cstring>

#include "check.h"
#include "state.h"

namespace emu {
namespace {
constexpr uint32_t kOtherPoison = 0x01010101u * kOtherFill;
struct Saved {
    EmuRegion region;
    const Cell* cells;          // null for memory too large to follow
    std::string before, after;
};
std::vector<Saved> saved;       // what the launch writes, or reads though nobody has written it
bool cannot_repeat = false;

char* data_of(const Saved& one) { return reinterpret_cast<char*>(one.region.data); }

void put_other_values(const Saved& one) {
    memcpy(data_of(one), one.before.data(), one.before.size());
    if (is_variable(one.region.number)) return;   // which begins as zero
    auto* words = reinterpret_cast<uint32_t*>(one.region.data);
    std::replace(words, words + one.region.bytes / 4, kPoison, kOtherPoison);
}

bool same_results(const Saved& one, const Launch& first) {
    const char* now = data_of(one);
    for (size_t at = 0; at < one.after.size(); at += 4) {
        const size_t bytes = std::min<size_t>(4, one.after.size() - at);
        if (!memcmp(now + at, one.after.data() + at, bytes)) continue;
        const bool unset = bytes == 4 && !memcmp(one.after.data() + at, &kPoison, 4) && !memcmp(now + at, &kOtherPoison, 4);
        if (!unset || (one.cells && one.cells[at / 4].write.block >= first.first_serial)) return false;
    }
    return true;
}

bool run_again(const Launch& first) {
    const Options before = options;
    options.check = false;
    options.workers = 1;   // the same order as with all detectors
    fill = kOtherFill;
    Launch again{};
    describe_launch(&again, first.config, first.number, first.call, first.context);
    execute(&again);
    fill = kFill;
    options = before;
    return !again.abort && again.findings.empty();
}
}  // namespace

unsigned char fill = kFill;

void begin_repeat() {
    saved.clear();
    cannot_repeat = false;
}

void forbid_repeat() { cannot_repeat = true; }

void save_for_repeat(const EmuRegion& region, const Cell* cells) {
    const bool known = std::any_of(saved.begin(), saved.end(), [&](const Saved& one) { return one.region.number == region.number; });
    if (known || cannot_repeat) return;
    if (region.bytes > kLargestFollowed) return forbid_repeat();
    saved.push_back({region, cells, std::string(reinterpret_cast<const char*>(region.data), region.bytes), ""});
}

void drop_unused_values(Launch* launch) {
    auto& findings = launch->findings;
    auto of_value = [](const RawFinding& f) { return f.of_value; };
    const bool worth = !findings.empty() && std::all_of(findings.begin(), findings.end(), of_value);
    if (!worth || cannot_repeat || launch->abort) return saved.clear();
    for (Saved& one : saved) one.after.assign(data_of(one), one.region.bytes);
    for (const Saved& one : saved) put_other_values(one);
    bool unused = run_again(*launch);
    for (const Saved& one : saved) {
        unused = unused && same_results(one, *launch);
        memcpy(data_of(one), one.after.data(), one.after.size());
    }
    saved.clear();
    if (unused) findings.clear();
}
}  // namespace emu
