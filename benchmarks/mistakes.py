#!/usr/bin/env python3
"""What eval.py says to mistakes that people make, each replayed in a terminal of 80 columns.

    python benchmarks/mistakes.py [-k NAME] [--show] [--json FILE]

A mistake is a file in tests/fixtures/mistakes: what it changes in right.py beside it, and what the report must say.
Prints for each the seconds, the exit code, how many lines of the terminal the report takes and how many stand before
the cause, and whether the file, the line and a remedy are named.
"""

import argparse
import contextlib
import fcntl
import itertools
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

from common import ROOT, save

FOLDER = ROOT / "tests" / "fixtures" / "mistakes"
PROBLEM = ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py"

COLUMNS, ROWS = 80, 50

# A report that helps has the cause among its first lines, and all of it on a screen.
MOST_LINES, CAUSE_WITHIN = 25, 3

# Colours and what a terminal adds at the ends of lines.
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")

# A line of a code frame, which has a caret below it.
_FRAME_LINE = re.compile(r"^\s*(\d+) │")


@dataclass(frozen=True)
class Mistake:
    """`cause` and `remedy` are regular expressions, `line` a part of the line that must be named; empty for a mistake
    that has none. `no_file` says why none can be named."""

    name: str
    says: str
    cause: str
    line: str = ""
    remedy: str = ""
    no_file: str = ""
    words: tuple[str, ...] = ()
    replace: tuple[tuple[str, str], ...] = ()

    @property
    def source(self):
        """right.py with the mistake."""
        text = (FOLDER / "right.py").read_text()
        for old, new in self.replace:
            if old not in text:
                sys.exit(f"{self.name}: right.py has no {old!r}")
            text = text.replace(old, new, 1)
        return text


@dataclass(frozen=True)
class Replayed:
    """What eval.py said. Lines are those of the terminal; `before_cause` is None where the cause is not named."""

    name: str
    seconds: float
    code: int
    lines: int
    before_cause: int | None
    names_file: bool | None
    names_line: bool | None
    names_remedy: bool | None

    @property
    def helps(self):
        """On a screen, with the cause in its first lines, and with all that applies: file, line and remedy."""
        is_soon = self.before_cause is not None and self.before_cause < CAUSE_WITHIN
        named = False not in (self.names_file, self.names_line, self.names_remedy)
        return is_soon and named and self.lines <= MOST_LINES


def mistakes():
    return [_read(path) for path in sorted(FOLDER.glob("*.toml"))]


def _read(path):
    content = tomllib.loads(path.read_text())
    replace = tuple((change["old"], change["new"]) for change in content.pop("replace", []))
    return Mistake(path.stem, words=tuple(content.pop("words", ())), replace=replace, **content)


# What a run says before its report, whatever it is that it judges: the first on a machine, and one beside a timed one.
BEFORE = re.compile(r"The emulator is built, once for|\S+: waiting for its turn on the ")


def replay(mistake, show=False):
    """Run eval.py on it, in a terminal, as its author would."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{mistake.name}.py"
        path.write_text(mistake.source)
        words = [str(path), "--problem", str(PROBLEM), "--device", "emulator", "--no-timing", "--no-store"]
        started_s = time.monotonic()
        code, report = _in_a_terminal([*words, *mistake.words], folder)
    if show:
        print(f"--- {mistake.name}: {mistake.says}\n{report}")
    return _judged(mistake, time.monotonic() - started_s, code, report)


def _in_a_terminal(words, folder):
    """The exit code, and what stands on the screen: standard output behind what standard error keeps."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    with open(Path(folder) / "errors", "w+") as errors:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "eval.py"), *words], stdin=subprocess.DEVNULL, stdout=theirs, stderr=errors,
            cwd=ROOT, env={**os.environ, "TERM": "xterm"},
        )  # fmt: skip
        os.close(theirs)
        said = _all_of(ours)
        code = process.wait()
        errors.seek(0)
        return code, _CONTROLS.sub("", errors.read() + said.decode(errors="replace"))


def _all_of(descriptor):
    parts = []
    with contextlib.suppress(OSError):  # EIO: nobody writes to the terminal any more
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    os.close(descriptor)
    return b"".join(parts)


def _judged(mistake, seconds, code, report):
    rows = [row for line in report.splitlines() if not BEFORE.match(line) for row in _rows(line)]
    # A sentence may be broken between any two of its words.
    first = re.search(mistake.cause.replace(" ", r"\s+"), _joined(rows))
    lines = [n for n, line in enumerate(mistake.source.splitlines(), 1) if mistake.line and _has(line, mistake.line)]
    file = f"{mistake.name}.py"
    return Replayed(
        name=mistake.name,
        seconds=round(seconds, 1),
        code=code,
        lines=len(rows),
        before_cause=_joined(rows)[: first.start()].count("\n") if first else None,
        names_file=None if mistake.no_file else file in report,
        names_line=any(_names_line(report, file, n) for n in lines) if mistake.line else None,
        # In the lines as they were printed: a terminal breaks one that is too long within a word.
        names_remedy=bool(re.search(mistake.remedy, " ".join(report.split()))) if mistake.remedy else None,
    )


def _has(line, part):
    return any(one in line for one in part.split("|"))


def _names_line(report, file, number):
    return bool(re.search(rf"{re.escape(file)}:{number}\b|\bline {number}\b", report)) or str(number) in (
        _marked(report)
    )


def _marked(report):
    """The numbers of lines in code frames that carets stand below."""
    lines = report.splitlines()
    return {
        found[1]
        for line, below in itertools.pairwise(lines)
        if (found := _FRAME_LINE.match(line)) and re.match(r"\s*│ +\^", below)
    }


def _rows(line):
    """How a terminal shows a line."""
    return [line[at : at + COLUMNS] for at in range(0, len(line), COLUMNS)] or [""]


def _joined(rows):
    """Text in which a sentence that was broken between two rows is found: blanks are one each, ends of rows stay."""
    return "\n".join(re.sub(r" +", " ", row).strip() for row in rows)


def heading(width):
    return f"{'mistake':<{width}}     s  exit  lines  before the cause  file  line  remedy"


def row(one, width):
    before = "–" if one.before_cause is None else str(one.before_cause)
    words = {True: "yes", False: "no", None: "–"}
    file, line, remedy = (words[named] for named in (one.names_file, one.names_line, one.names_remedy))
    mark = "" if one.helps else "  <"
    said = f"{one.name:<{width}} {one.seconds:5.1f}  {one.code:4}  {one.lines:5}  {before:>16}"
    return f"{said}  {file:>4}  {line:>4}  {remedy:>6}{mark}"


def summary(found):
    helped = sum(one.helps for one in found)
    where = f"in at most {MOST_LINES} lines of {COLUMNS} columns, the cause in the first {CAUSE_WITHIN}"
    return f"{helped} of {len(found)} {where}, with the file, the line and a remedy where there are any"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", dest="pattern", default="", metavar="NAME", help="only mistakes whose name has this")
    parser.add_argument("--show", action="store_true", help="print what eval.py says, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to keep what was found")
    options = parser.parse_args()
    chosen = [one for one in mistakes() if options.pattern in one.name]
    width = max([len(one.name) for one in chosen], default=0)
    print(heading(width))
    found = []
    for one in chosen:
        found.append(replay(one, options.show))
        print(row(found[-1], width), flush=True)
    print(summary(found))
    save(options.json, {"mistakes": [asdict(one) for one in found]})


if __name__ == "__main__":
    main()
