"""Whether what fails with the lean header fails with all of torch's headers, too: then nobody waits for it to be tried.

The lean header (preludes.py) declares less than they do, so an error may be its own. It is the source's own where
nothing that only they declare can have a part in it: that is known by names, since each token of a declaration or a
macro is among the tokens of the preprocessed headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

# Beside the compiled lean header: a name of torch's headers a line, behind a mark where the lean one lacks it.
FILE = "names"
_LACKING = "+"

_NAME = re.compile(r"[A-Za-z_]\w*")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CONDITION = re.compile(r"^\s*#\s*(?:el)?if(?:n?def)?\b(.*)$", re.MULTILINE)
_SYSTEM_HEADER = re.compile(r"#\s*include\s*<[^>\n]*>")
_ERROR = re.compile(r": (?:fatal )?error: (.*)$", re.MULTILINE)

# A name that is nowhere in torch's headers is not declared by them.
_UNKNOWN = re.compile(
    r"'(\w+)' was not declared|has no member named '(\w+)'|'(\w+)' does not name a"
    r"|no matching function for call to '(\w+)[(<]"
)
# For another name, or another scope, they may declare it where the lean header does not.
_LOOKED_UP = re.compile(
    r"not declared|no member|not a member|does not name|no arguments to|No such file|#error"
    r"|no matching function for call to '(?!emu::Launcher)"
)
# Of these, one that the source uses as a variable only a using directive could find among what is in namespaces.
_VARIABLE = re.compile(r"'(\w+)' was not declared in this scope")
_USING = re.compile(r"\busing\b")
# Overloads and conversions of their types may be among what the lean header leaves out; numbers are numbers.
_OF_TORCH = re.compile(r"\b(?:at|c10|torch|caffe2)::(?!(?:Half|BFloat16)\b)")


@dataclass(frozen=True)
class Names:
    """The names in torch's headers, and those of them that the lean header lacks."""

    known: frozenset[str]
    lacking: frozenset[str]

    def with_declared(self, preprocessed: str) -> Names:
        """These, where the source has included that too."""
        there = _names(preprocessed)
        return Names(self.known | there, self.lacking - there)


def write(folder: Path, all_of_torch: str, lean: str) -> None:
    """Keep the names of both headers, which are given preprocessed, with their macros."""
    known, there = _names(all_of_torch), _names(lean)
    (folder / FILE).write_text("\n".join(name if name in there else _LACKING + name for name in sorted(known)))


def read(folder: Path) -> Names | None:
    """What `write` has kept; None where it has not."""
    try:
        lines = (folder / FILE).read_text().split("\n")
    except OSError:
        return None
    lacking = frozenset(line.removeprefix(_LACKING) for line in lines if line.startswith(_LACKING))
    return Names(lacking.union(lines), lacking)


def are_of_the_source(log: str, texts: Iterable[str], names: Names) -> bool:
    """Whether the errors that a compiler reports under the lean header are none of that header's. `texts` are all that
    was compiled behind it, and the definitions on the command line."""
    first, *others = _ERROR.findall(log) or [""]
    if not first or any(_OF_TORCH.search(error) and not _is_unknown(error, names) for error in (first, *others)):
        return False
    plain = [_SYSTEM_HEADER.sub(" ", _COMMENT.sub(" ", text)) for text in texts]
    if _is_unknown(first, names):  # unless it is of the source's own, behind a condition that only they fulfil
        conditions = (said for text in plain for said in _CONDITION.findall(text))
        return all(names.lacking.isdisjoint(_names(said)) for said in conditions)
    return not _may_use(plain, names.lacking) and not _may_be_found(first, plain)


def _is_unknown(error: str, names: Names) -> bool:
    """Whether it is about a name that torch's headers do not have."""
    found = _UNKNOWN.search(error)
    return found is not None and next(filter(None, found.groups())) not in names.known


def _may_use(texts: Sequence[str], lacking: frozenset[str]) -> bool:
    """Whether one of these names is in the texts, or may be: in a file that they include, or pasted together."""
    if any("##" in text or re.search(r'#\s*include\s*"', text) for text in texts):
        return True
    return any(not lacking.isdisjoint(_names(text)) for text in texts)


def _may_be_found(error: str, texts: Sequence[str]) -> bool:
    """Whether it is about something that was not found, and may be with other headers."""
    variable = _VARIABLE.search(error)
    if not variable:
        return _LOOKED_UP.search(error) is not None
    otherwise_used = re.compile(rf"\b{variable[1]}\s*[(<:]")
    return any(_USING.search(text) or otherwise_used.search(text) for text in texts)


def _names(text: str) -> set[str]:
    return set(_NAME.findall(_STRING.sub(" ", text)))
