"""One `load_inline` call as a value: what a worker asks the judge to have built, and what a build is made from."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import astuple, dataclass

# Beside what was built: the Extension that it was built from, as JSON.
SOURCES = "sources.json"

# What has a compiler read a further file, or may with a comment behind the mark; and what names one that a search of
# the machine's own folders finds. The judge reads what anybody wrote: patterns take time in proportion to the text.
_SPLICE = re.compile(r"(?:\\|\?\?/)[ \t]*\r?\n")
_READS = re.compile(
    r"(?P<asks>(?:\#\s*ifn?def|\bdefined)\b[\s(]*__has_(?:include|embed)\b)"
    r"|(?:\#|%:|\?\?=)\s*(?:/\*|(?:include(?:_next)?|embed|import)\b)[^\n]*"
    r"|\b__has_(?:include|embed)\b(?:\s*\([^()\n]*\))?|\bincbin\b"
)
_NAME = r"[<\"](?!/)(?![^>\"\n]*\.\./)[^>\"\n]+[>\"]"
_ITS_OWN_NAME = re.compile(rf"\#\s*include\s*{_NAME}|__has_include\s*\(\s*{_NAME}\s*\)$")


@dataclass(frozen=True)
class SourceText:
    """A piece of C++ or CUDA and where it stands: its first line is line `line` of `file`.

    `line` is 0 when the text was computed and stands nowhere in the file.
    """

    text: str
    file: str = ""
    line: int = 0

    @property
    def located(self) -> str:
        """The text behind a `#line` directive, so that compilers speak of the submission's own lines."""
        if not self.line:
            return self.text
        return f"#line {self.line} {json.dumps(self.file)}\n{self.text}"


@dataclass(frozen=True)
class Extension:
    """The arguments of one `torch.utils.cpp_extension.load_inline` call that decide what is built.

    `functions` maps each exported C++ function to its docstring. Order is kept everywhere, since it
    reaches the compiler's command line.
    """

    name: str
    cpp_sources: tuple[SourceText, ...]
    cuda_sources: tuple[SourceText, ...] = ()
    functions: tuple[tuple[str, str], ...] = ()
    extra_cflags: tuple[str, ...] = ()
    extra_cuda_cflags: tuple[str, ...] = ()
    extra_ldflags: tuple[str, ...] = ()
    extra_include_paths: tuple[str, ...] = ()
    no_implicit_headers: bool = False
    """Whether the sources include torch's headers themselves."""

    @property
    def reads_by_path(self) -> str:
        """The first line that may have a compiler read a file by a path of its own, or of a name that only a
        preprocessor knows; empty where there is none."""
        for source in (*self.cpp_sources, *self.cuda_sources):
            for found in _READS.finditer(_SPLICE.sub("", source.text)):
                if not (found["asks"] or _ITS_OWN_NAME.match(found.group())):
                    return found.group().strip()
        return ""

    def digest(self, toolchain_fingerprint: str) -> str:
        """SHA-256 (first 32 hex digits) of everything that can change the built file."""
        parts = [
            toolchain_fingerprint,
            SOURCES,  # every build has them
            self.name,  # the library's name and its init function have it
            [astuple(s) for s in self.cpp_sources],
            [astuple(s) for s in self.cuda_sources],
            self.functions,
            self.extra_cflags,
            self.extra_cuda_cflags,
            self.extra_ldflags,
            self.extra_include_paths,
            self.no_implicit_headers,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def module_name(self, digest: str) -> str:
        """What the built module is called, with the digest: Python and pybind11 know a module by its name."""
        return f"{re.sub(r'[^0-9A-Za-z_]', '_', self.name)}_{digest[:16]}"
