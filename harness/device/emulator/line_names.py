"""A process that names the source lines of addresses for the emulator's findings, by binutils' addr2line.

It is started before a submission is loaded: after its first call a submission's worker can start no process. A question
is a line with an offset, a space and a library's path; an answer is addr2line's lines and an empty one. It ends when
nobody can ask it any more."""

from __future__ import annotations

import subprocess
import sys


def start() -> subprocess.Popen[bytes]:
    """Start it; it is asked by its standard input and answers on its standard output."""
    return subprocess.Popen([sys.executable, "-IS", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _frames(library: str, offset: str) -> str:
    """'file:line' for each frame that was inlined at `offset`, innermost first; empty where nothing is known."""
    command = ["addr2line", "-i", "-e", library, offset]
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


if __name__ == "__main__":
    for question in sys.stdin:
        offset, _, library = question.rstrip("\n").partition(" ")
        print(_frames(library, offset), end="\n\n", flush=True)
