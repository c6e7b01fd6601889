// What kernels do to memory, as a GPU's counters would show it. Lanes run one after the other, so that the k-th
// time a lane comes to an instruction is put together with the k-th time of the other lanes of its warp. Bytes,
// atomics and barriers are counted everywhere; sectors and bank conflicts in every block of small grids and in
// some of a large one, and scaled up.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "check.h"

namespace emu {
namespace {
struct WarpAccess {
    uint32_t lanes = 0;
    bool write = false, shared = false;
    uint8_t bytes = 0;
    uintptr_t address[32];
};
struct Site {                      // one instruction of one warp
    uint32_t times[32] = {};       // each lane has come here since the lanes last met
    std::vector<WarpAccess> accesses;
};
struct LastAccess {                // of a lane, to put the two halves of a packed pair together
    uintptr_t pc = 0, address = 0;
    bool write = false;
};
constexpr uint64_t kBlocksFollowed = 128;
struct Sample {                    // of the running launch
    uint64_t every = 1, sectors = 0, ideal = 0, conflicts = 0;
} sample;
struct Counts {
    uint64_t launches = 0, read = 0, written = 0, sectors = 0, ideal = 0, conflicts = 0, atomics = 0, barriers = 0;
    uint64_t not_followed = 0;   // bytes accessed in tensors too large for their shadow
    unsigned worst = 0;
    uintptr_t worst_at = 0;
    int worst_line = 0;
    std::string file;
};
std::map<std::string, Counts> totals;   // by kernel
Counts* active = nullptr;
struct Warp {
    std::unordered_map<uintptr_t, Site> sites;   // by instruction
    struct Found {
        uintptr_t pc;
        Site* site;
    };
    Found recent[64] = {};                       // by the end of the instruction's address
    std::vector<Found> used;                     // since the lanes last met
    LastAccess last[32];                         // by lane

    Site& site(uintptr_t pc) {
        Found& found = recent[pc % std::size(recent)];
        if (found.pc != pc || !found.site) found = {pc, &sites[pc]};
        return *found.site;
    }
};
using Warps = std::vector<Warp>;
std::unordered_map<const BlockState*, Warps> blocks;
constexpr size_t kWidestAccess = 128;       // bytes of one lane's that are followed
constexpr size_t kMostAccesses = 1 << 14;   // of one instruction between two meetings of a warp

struct Places {   // of one access of a warp: addresses, sectors or words
    uintptr_t of[9 * 32];   // 8 lanes with 33 words are most
    size_t count = 0;

    void add(uintptr_t place) { of[count++] = place; }
    void keep_distinct() {
        if (!std::is_sorted(of, of + count)) std::sort(of, of + count);
        count = size_t(std::unique(of, of + count) - of);
    }
};

void count_sectors(const WarpAccess& a) {
    Places sectors, addresses;
    for (unsigned lane = 0; lane < 32; lane++) {
        if (!(a.lanes >> lane & 1)) continue;
        addresses.add(a.address[lane]);
        for (uintptr_t s = a.address[lane] / 32; s <= (a.address[lane] + a.bytes - 1) / 32; s++) sectors.add(s);
    }
    sectors.keep_distinct();
    addresses.keep_distinct();
    sample.sectors += sectors.count;
    sample.ideal += (addresses.count * a.bytes + 31) / 32;
}

// 32 banks of 4 bytes; wide accesses are served for half a warp or a quarter at a time. Lanes that read the same
// word share it.
void count_conflicts(const WarpAccess& a, uintptr_t pc) {
    const unsigned together = a.bytes <= 4 ? 32 : a.bytes <= 8 ? 16 : 8;
    for (unsigned first = 0; first < 32; first += together) {
        Places words;
        for (unsigned lane = first; lane < first + together; lane++) {
            if (!(a.lanes >> lane & 1)) continue;
            for (uintptr_t w = a.address[lane] / 4; w <= (a.address[lane] + a.bytes - 1) / 4; w++) words.add(w);
        }
        words.keep_distinct();
        unsigned load[32] = {}, worst = 0;
        for (size_t i = 0; i < words.count; i++) worst = std::max(worst, ++load[words.of[i] % 32]);
        if (worst < 2) continue;
        sample.conflicts += worst - 1;
        if (worst <= active->worst) continue;
        active->worst = worst;
        active->worst_at = pc;
    }
}

void settle_site(Site& site, uintptr_t pc) {
    for (const WarpAccess& access : site.accesses) {
        if (access.shared) count_conflicts(access, pc);
        else count_sectors(access);
    }
    site.accesses.clear();
    std::fill(std::begin(site.times), std::end(site.times), 0);
}

void settle(Warps& warps) {
    for (Warp& warp : warps) {
        for (const auto& [pc, site] : warp.used) settle_site(*site, pc);
        warp.used.clear();
    }
}

// Copies of packed half types come as two accesses of 2 bytes, one behind the other.
bool completes_pair(const Access& access, Warp& warp, WarpAccess** first) {
    LastAccess& last = warp.last[current->lane];
    const bool pair = access.bytes == 2 && access.address % 4 == 2 && last.address + 2 == access.address &&
                      last.write == access.write;
    if (pair) {
        Site& site = warp.site(last.pc);
        const uint32_t time = site.times[current->lane];
        if (time && time <= site.accesses.size()) *first = &site.accesses[time - 1];
    }
    last = LastAccess{access.pc, access.address, access.write};
    return pair && *first;
}

std::string as_json(const std::string& kernel, const Counts& c) {
    return text("{\"kernel\":\"%s\",\"launches\":%llu,\"global_read_bytes\":%llu,\"global_write_bytes\":%llu,"
                "\"sectors\":%llu,\"ideal_sectors\":%llu,\"bank_conflicts\":%llu,\"worst_bank_conflict\":%u,"
                "\"worst_bank_conflict_line\":%d,\"atomics\":%llu,\"barriers\":%llu,"
                "\"not_followed_bytes\":%llu}",
                kernel.c_str(), (unsigned long long)c.launches, (unsigned long long)c.read,
                (unsigned long long)c.written, (unsigned long long)c.sectors, (unsigned long long)c.ideal,
                (unsigned long long)c.conflicts, c.worst, c.worst_line, (unsigned long long)c.atomics,
                (unsigned long long)c.barriers, (unsigned long long)c.not_followed);
}
}  // namespace

void count_access(const Access& access, bool shared) {
    if (is_atomic(access.kind)) return void(active->atomics++);
    if (!shared) (access.write ? active->written : active->read) += access.bytes;
    if (current_block()->number % sample.every) return;
    const size_t warps = (current_block()->threads.size() + 31) / 32;
    Warp& warp = blocks.try_emplace(current_block(), warps).first->second[current->warp];
    WarpAccess* pair = nullptr;
    if (completes_pair(access, warp, &pair)) return void(pair->bytes = 4);
    const uintptr_t pc = access.pc ? access.pc : uintptr_t(access.line);
    Site& site = warp.site(pc);
    const uint32_t time = site.times[current->lane]++;
    if (time >= kMostAccesses) return;
    if (!time && site.accesses.empty()) warp.used.push_back({pc, &site});
    if (time >= site.accesses.size()) site.accesses.emplace_back();
    WarpAccess& together = site.accesses[time];
    together.lanes |= 1u << current->lane;
    together.write = access.write;
    together.shared = shared;
    together.bytes = uint8_t(std::min(access.bytes, kWidestAccess));
    together.address[current->lane] = access.address;
}

void count_barrier(BlockState*) { active->barriers++; }
void count_not_followed(size_t bytes) { active->not_followed += bytes; }

void count_settle(BlockState* block) {
    const auto entry = blocks.find(block);
    if (entry != blocks.end()) settle(entry->second);
}

void begin_counts(Launch* launch) {
    active = &totals[launch->config.kernel];
    active->launches++;
    active->file = launch->config.file;
    sample = Sample{};
    sample.every = std::max<uint64_t>(1, launch->blocks / kBlocksFollowed);
    blocks.clear();
}

void end_counts(Launch* launch) {
    for (auto& [block, warps] : blocks) settle(warps);
    blocks.clear();
    const uint64_t followed = (launch->blocks + sample.every - 1) / sample.every;
    auto scaled = [&](uint64_t n) { return uint64_t(double(n) * double(launch->blocks) / double(followed) + 0.5); };
    active->sectors += scaled(sample.sectors);
    active->ideal += scaled(sample.ideal);
    active->conflicts += scaled(sample.conflicts);
    if (!active->worst_at) return;
    const bool is_line = active->worst_at < (1u << 24);   // known as a line from the start
    RawFinding place;
    place.file = active->file;
    place.at = is_line ? 0 : active->worst_at;
    place.line = is_line ? int(active->worst_at) : 0;
    resolve(place);
    active->worst_line = place.line;
    active->worst_at = 0;
}
}  // namespace emu

extern "C" const char* emu_take_counts() {
    static std::string answer;
    answer = "[";
    for (const auto& [kernel, counts] : emu::totals) {
        answer += (answer.size() > 1 ? "," : "") + emu::as_json(kernel, counts);
    }
    answer += "]";
    emu::totals.clear();
    emu::active = nullptr;
    return answer.c_str();
}
