#include "findings.h"

#include <dlfcn.h>

#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace emu {
namespace {
constexpr size_t kMostKept = 1000;
std::mutex lock;
std::vector<RawFinding> kept;
int testimony = -1;   // findings leave the process here at once, where there is somebody to read them
std::mutex naming;
FILE* questions = nullptr;  // to a process that names lines, where there is one
FILE* answers = nullptr;

std::string quoted(const std::string& s) {
    std::string out = "\"";
    for (unsigned char c : s) {
        char escape[8];
        if (c == '"' || c == '\\') out += std::string("\\") + char(c);
        else if (c < 0x20) out += (snprintf(escape, sizeof escape, "\\u%04x", c), escape);
        else out += char(c);
    }
    return out + "\"";
}

std::string listed(const Coordinates& v) {
    return std::to_string(v[0]) + "," + std::to_string(v[1]) + "," + std::to_string(v[2]);
}

std::string triple(const std::optional<Coordinates>& v) { return v ? "[" + listed(*v) + "]" : "null"; }

std::string as_json(const RawFinding& f) {
    return "{\"kind\":" + quoted(f.kind) + ",\"message\":" + quoted(f.message) + ",\"kernel\":" + quoted(f.kernel) +
           ",\"file\":" + quoted(f.file) + ",\"launch\":" + std::to_string(f.launch) +
           ",\"line\":" + std::to_string(f.line) + ",\"block\":" + triple(f.block) +
           ",\"thread\":" + triple(f.thread) + ",\"access\":" + quoted(f.access) +
           ",\"other_line\":" + std::to_string(f.other_line) + ",\"other_access\":" + quoted(f.other_access) + "}";
}

// A submission that shares the memory could empty `kept`. A line is written whole up to PIPE_BUF bytes, so a message that
// is longer is cut.
void testify(RawFinding f) {
    if (testimony < 0) return;
    const auto line = [&] { return "{\"type\":\"found\",\"finding\":" + as_json(f) + "}\n"; };
    if (line().size() > PIPE_BUF) f.message = "A message too long to be passed on.";
    if (line().size() > PIPE_BUF) f.kernel = f.file = "";
    const std::string text = line();
    while (write(testimony, text.data(), text.size()) < 0 && errno == EINTR) {}
}

const char* base_name(const char* path) {
    const char* slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// One "file:line" of addr2line's answer, or line 0.
int parse_line(const std::string& text, std::string* file) {
    const size_t colon = text.rfind(':');
    if (colon == std::string::npos) return 0;
    *file = text.substr(0, colon);
    return atoi(text.c_str() + colon + 1);
}

// The innermost frame that stands in `wanted`, since shim headers are inlined into the submission's code.
int line_of(uintptr_t address, const std::string& wanted) {
    Dl_info info;
    if (!dladdr(reinterpret_cast<void*>(address), &info) || !info.dli_fname) return 0;
    const size_t offset = address - reinterpret_cast<uintptr_t>(info.dli_fbase);
    char hex[32];
    snprintf(hex, sizeof hex, "0x%zx", offset);
    std::lock_guard<std::mutex> guard(naming);
    if (!questions || !answers) return 0;
    fprintf(questions, "%s %s\n", hex, info.dli_fname);
    fflush(questions);
    char buffer[4096];
    int best = 0;
    while (fgets(buffer, sizeof buffer, answers) && buffer[0] != '\n') {
        std::string file;
        const int line = parse_line(buffer, &file);
        if (!best && line && !strcmp(base_name(file.c_str()), base_name(wanted.c_str()))) best = line;
    }
    return best;
}
}  // namespace

void resolve(RawFinding& finding) {
    // A return address points behind the call, hence one byte back.
    if (finding.at && !finding.line) finding.line = line_of(finding.at - 1, finding.file);
    if (finding.caller && !finding.line) finding.line = line_of(finding.caller - 1, finding.file);
    if (finding.other && !finding.other_line) finding.other_line = line_of(finding.other - 1, finding.file);
    if (!finding.other_line) return;
    finding.message += " The other access is at line " + std::to_string(finding.other_line) + ".";
}

void keep(const RawFinding& finding) {
    std::lock_guard<std::mutex> guard(lock);
    if (kept.size() == kMostKept) return;
    kept.push_back(finding);
    testify(finding);
}

std::string sentence(const RawFinding& f) {
    std::string where = "launch " + std::to_string(f.launch);
    if (!f.kernel.empty()) where = "kernel " + f.kernel + ", " + where;
    if (f.line) where += ", " + std::string(base_name(f.file.c_str())) + ":" + std::to_string(f.line);
    if (f.block) where += ", block (" + listed(*f.block) + ")";
    if (f.thread) where += ", thread (" + listed(*f.thread) + ")";
    return f.message + " [" + f.kind + "; " + where + "]";
}
}  // namespace emu

extern "C" void emu_testify(int descriptor) { emu::testimony = descriptor; }

extern "C" void emu_name_lines_by(int ask, int hear) {
    std::lock_guard<std::mutex> guard(emu::naming);
    emu::questions = fdopen(ask, "w");
    emu::answers = fdopen(hear, "r");
}

extern "C" const char* emu_take_findings() {
    static std::string answer;
    std::lock_guard<std::mutex> guard(emu::lock);
    answer = "[";
    for (const auto& finding : emu::kept) answer += (answer.size() > 1 ? "," : "") + emu::as_json(finding);
    answer += "]";
    emu::kept.clear();
    return answer.c_str();
}
