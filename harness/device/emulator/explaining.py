"""A compiler's messages in the submission's own lines and in CUDA's words, and whose fault they are: the source's or
the emulator's, which has not all that CUDA has."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from harness.build.extension import BuildFailed, Unsupported
from harness.device.emulator import cuda_names
from harness.protocol.extension import SourceText

_ERROR = re.compile(r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)$")
_INSTANTIATED = re.compile(r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):\d+:\s+(?:required from|in '?constexpr)")
_LAUNCH = re.compile(r"emu::Launcher::typed\(void \(&\)\((?P<parameters>.*?)\)(?:, (?P<arguments>.*))?\)'")
_TEMPLATE_LAUNCH = re.compile(r".*emu::Launcher::typed\(<unresolved overloaded function type>(?:, (.*))?\)'.*")
_INCOMPLETE_LAUNCH = "no matching function for call to 'emu::Launcher::Launcher("
_RETURNS = re.compile(r"emu::Launcher::typed\((?!void |<)(?P<type>[^()]*?) ?\(&\)\(")
_NOT_LAUNCHED = "the kernel cannot be launched with "
_RUN_TIME_ARRAY = re.compile(r"variable length array (?:'(?P<name>[^']*)' )?is used.*")
_CONVERSION = re.compile(r"'emu::identity<.*?>::type' \{aka ('[^']*')\}")
_UNSUPPORTED = re.compile(r"unsupported_by_emulator: ([^\"\n]*?)[\"'’]*$", re.MULTILINE)

# What a linker says for itself. Where it names a function, what is wrong there is on the next line.
_LINKER = re.compile(r"\b(?:ld(?:\.\w+)?|collect2): (?!warning|.*: in function )")

# Names that only the translator writes. A launch is the source's own, and its arguments may be wrong.
_GENERATED = re.compile(r"\bemu_(?:shared|variable)_\w+|\bemu::(?!Launcher|identity|run\b)\w+")

# What the compiler proposes in place of a name it does not know, where that is a name of the emulator's own.
_PROPOSED = re.compile(r"; did you mean '[^']*\bemu(?:::|_)[^']*'\?")

# g++ names the token that comes too soon. Where it begins a line, what is missing is missing in the one before.
_ENDS_TOO_LATE = re.compile(r"(?P<expected>expected (?:',' or )?';') before '(?P<token>[^']+)'(?: token)?")
_UNKNOWN = re.compile(r"'(\w+)' was not declared in this scope")
_NO_FILE = "No such file or directory"
_WHERE_FILES_ARE = ". A submission is one file: put the text into it, or name its folder in extra_include_paths"

# What stands for C's functions in kernels, with their arguments.
_COPIES = re.compile(r"\bemu::(copy|move|set)_bytes\b")
_AS_WRITTEN = {"copy": "memcpy", "move": "memmove", "set": "memset"}


def is_of(log: str, pieces: Sequence[SourceText], whole_file: str = "") -> bool:
    """Whether the compiler's first error is at a line of these sources, or anywhere in `whole_file`."""
    first = _first_error(log)
    if first is None:
        return False
    line = int(first["line"])
    own = (piece for piece in pieces if piece.line and piece.file == first["file"])
    return first["file"] == whole_file or any(0 <= line - piece.line <= piece.text.count("\n") for piece in own)


def has_errors(log: str) -> bool:
    """Whether the compiler found any; where not, the linker did."""
    return _first_error(log) is not None


def _first_error(log: str) -> re.Match[str] | None:
    return next(filter(None, map(_ERROR.match, log.splitlines())), None)


def _in_words_of_cuda(text: str) -> str:
    """A compiler's message without the types that a launch is made of here."""
    text = _COPIES.sub(lambda copy: _AS_WRITTEN[copy[1]], _PROPOSED.sub("", _CONVERSION.sub(r"\1", text)))
    if _INCOMPLETE_LAUNCH in text:
        return "a launch needs a grid and a block, as in name<<<grid, block>>>(...)"
    if array := _RUN_TIME_ARRAY.fullmatch(text):
        which = f"the array '{array['name']}'" if array["name"] else "an array"
        return f"{which} of a device function has a size that is known at run time alone: nvcc refuses this"
    if returned := _RETURNS.search(text):
        return f"a kernel returns void, and this one returns {returned['type']}"
    launch = _LAUNCH.search(text)
    if of_template := _TEMPLATE_LAUNCH.fullmatch(text):
        return f"{_NOT_LAUNCHED}({of_template[1] or ''}): their number or their types are others"
    if not launch:
        return text
    return f"the kernel takes ({launch['parameters']}) and is launched with ({launch['arguments'] or ''})"


def _not_emulated(text: str, unsupported: re.Match[str] | None) -> str:
    """What the emulator lacks, if an error is of that sort; nothing for a mistake in the source."""
    if unsupported and "unsupported_by_emulator" in text:
        return unsupported[1].strip()
    if _GENERATED.search(_in_words_of_cuda(text)):
        return f"what stands here (the compiler says of the translated text: {text})"
    return cuda_names.missing_in(text)


def explained(log: str, sources: Sequence[SourceText]) -> Exception:
    """The compiler's errors in short, each at the submission's own line where there is one, with what mends it where
    that is known."""
    files = {piece.file for piece in sources if piece.file}
    unsupported = _UNSUPPORTED.search(log)
    errors, place = [], ""
    for text in log.splitlines():
        outer = _INSTANTIATED.match(text)
        if outer and outer["file"] in files:
            place = f"{outer['file']}:{outer['line']}"
        match = _ERROR.match(text)
        if not match:
            if "undefined reference" in text or _LINKER.search(text):
                errors.append(text.strip())
            continue
        if match["file"] in files:
            place = f"{match['file']}:{match['line']}"
        if lacks := _not_emulated(match["text"], unsupported):
            return Unsupported(f"{place or 'the source'}: the emulator does not support {lacks}.")
        words = _in_words_of_cuda(match["text"])
        if place == f"{match['file']}:{match['line']}":
            place, words = _helpful(match["file"], int(match["line"]), words, sources)
        error = f"{place or match['file'] + ':' + match['line']}: {words}"
        begins = error.partition("(")[0]
        if not (begins.endswith(_NOT_LAUNCHED) and any(other.startswith(begins) for other in errors)):  # of each dtype
            errors.append(error)
        place = ""
    if not errors:
        errors = log.strip().splitlines()[-5:]
    more = f"\n(and {len(errors) - 5} more errors)" if len(errors) > 5 else ""
    return BuildFailed("\n".join(errors[:5]) + more)


def _helpful(file: str, line: int, words: str, sources: Sequence[SourceText]) -> tuple[str, str]:
    """An error at a line of the submission: its place, and its text with what mends it."""
    if late := _ENDS_TOO_LATE.fullmatch(words):
        if unfinished := _line_before(file, line, late["token"], sources):
            return f"{file}:{unfinished}", f"{late['expected']} at its end, before '{late['token']}' in line {line}"
    elif unknown := _UNKNOWN.fullmatch(words):
        words += _near(unknown[1], sources)
    elif words.endswith(_NO_FILE):
        words += _WHERE_FILES_ARE
    return f"{file}:{line}", words


def _line_before(file: str, line: int, token: str, sources: Sequence[SourceText]) -> int:
    """The number of the last line of code before one that begins with `token`; 0 where it is not known."""
    for piece in sources:
        lines = piece.text.split("\n")
        at = line - piece.line
        if piece.file != file or not 0 < at < len(lines) or not lines[at].lstrip().startswith(token):
            continue
        before = [number for number in range(at) if lines[number].split("//")[0].strip()]
        if before and not lines[before[-1]].strip().startswith("#") and not lines[before[-1]].rstrip().endswith("*/"):
            return piece.line + before[-1]
    return 0


def _near(name: str, sources: Sequence[SourceText]) -> str:
    """The name in the sources that is most like one that nothing declares."""
    known = {word for piece in sources for word in re.findall(r"\b[A-Za-z_]\w*", piece.text)} - {name}
    near = difflib.get_close_matches(name, sorted(known), 1, cutoff=0.75)
    return f"; did you mean '{near[0]}'?" if near else ""
