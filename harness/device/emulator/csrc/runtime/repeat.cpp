// What a launch tells when it runs again from the same memory. Whether what nobody has written was used: with other
// values in its place it must leave the same results, and a value that is read and dropped changes nothing. Which
// volatile words are polled: when their writers linger, who polls does so.
#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

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

std::unordered_set<uintptr_t> polled_words, polled_sites;
constexpr unsigned kMostOften = 16;        // times that threads linger at one place
constexpr uint64_t kMostTurns = 20'000;    // of all blocks, while threads linger
bool lingers = false;
std::unordered_map<uintptr_t, unsigned> lingered;   // times, by place
uint64_t turns_left = 0;

char* data_of(const Saved& one) { return reinterpret_cast<char*>(one.region.data); }

void put_other_values(const Saved& one) {
    memcpy(data_of(one), one.before.data(), one.before.size());
    if (is_variable(one.region.number)) return;   // which begins as zero
    auto* words = reinterpret_cast<uint32_t*>(one.region.data);
    std::replace(words, words + one.region.bytes / 4, kPoison, kOtherPoison);
}

void keep_results() {
    for (Saved& one : saved) one.after.assign(data_of(one), one.region.bytes);
}

void put_results_back(const Saved& one) { memcpy(data_of(one), one.after.data(), one.after.size()); }

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

bool run_again(const Launch& first, unsigned char unset) {
    const Options before = options;
    options.check = false;
    options.workers = 1;   // the same order as with all detectors
    fill = unset;
    Launch again{};
    describe_launch(&again, first.config, first.number, first.call, first.context);
    execute(&again);
    fill = kFill;
    options = before;
    drop_compared(&again);
    return !again.abort && again.findings.empty();
}
}  // namespace

unsigned char fill = kFill;

void begin_repeat() {
    saved.clear();
    cannot_repeat = false;
    polled_words.clear();
    polled_sites.clear();
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
    keep_results();
    for (const Saved& one : saved) put_other_values(one);
    bool unused = run_again(*launch, kOtherFill);
    for (const Saved& one : saved) {
        unused = unused && same_results(one, *launch);
        put_results_back(one);
    }
    saved.clear();
    if (unused) findings.clear();
}

namespace {
bool is_polled(const RawFinding& f) { return polled_words.contains(f.unless_polled) || polled_sites.contains(f.polled_site); }

void look_for_polls(const Launch& launch) {
    keep_results();
    for (const Saved& one : saved) memcpy(data_of(one), one.before.data(), one.before.size());
    lingers = true;
    lingered.clear();
    turns_left = kMostTurns;
    run_again(launch, kFill);
    lingers = false;
    for (const Saved& one : saved) put_results_back(one);
}
}  // namespace

void remember_poll(uintptr_t address, uintptr_t site) {
    if (!options.check && !lingers) return;
    polled_words.insert(address & ~uintptr_t(3));
    polled_sites.insert(site);
}

void linger(uintptr_t site) {
    if (!lingers || ++lingered[site] > kMostOften) return;
    BlockState* b = current_block();
    const uint64_t turns = std::min(b->launch->blocks, b->launch->resident) + 4;   // a block may start in each
    for (uint64_t turn = 0; turn < turns && turns_left && !b->launch->abort; turn++) {
        turns_left--;
        b->ready.push_back(uint16_t(current->rank));
        b->gave_way = true;
        suspend_to_scheduler(current);
    }
}

void drop_polled(Launch* launch) {
    auto& findings = launch->findings;
    auto is_none = [](const RawFinding& f) { return f.unless_polled && is_polled(f); };
    auto is_unsure = [](const RawFinding& f) { return f.unless_polled != 0; };
    std::erase_if(findings, is_none);
    if (std::none_of(findings.begin(), findings.end(), is_unsure)) return;
    if (cannot_repeat || launch->abort) return void(std::erase_if(findings, is_unsure));   // nobody can tell
    look_for_polls(*launch);
    if (turns_left) std::erase_if(findings, is_none);
    else std::erase_if(findings, is_unsure);
}
}  // namespace emu
