"""Keys that are read one at a time from a terminal, which is left as it was found."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
import tty
from collections.abc import Iterator

TIME, FAILING, CHECK, AGAIN, STOP = "t", "f", "c", "r", "q"
HELP = ("h", "?")

SAID = "t times it, f shows the failing case, c turns --check on or off, r judges again, h lists keys, q stops"


@contextlib.contextmanager
def one_at_a_time() -> Iterator[int | None]:
    """The file to read keys from, each as it is pressed and without an echo; None where standard input is no terminal,
    or that of another job, which setting it would stop this one for."""
    terminal = _terminal()
    if terminal is None:
        yield None
        return
    found = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield terminal
    finally:
        with contextlib.suppress(termios.error):  # it was closed
            termios.tcsetattr(terminal, termios.TCSADRAIN, found)


def _terminal() -> int | None:
    with contextlib.suppress(OSError, ValueError):
        number = sys.stdin.fileno()
        if os.isatty(number) and os.tcgetpgrp(number) == os.getpgrp():
            return number
    return None


def pressed(terminal: int) -> str:
    """The keys that wait to be read; STOP where the terminal is gone."""
    try:
        read = os.read(terminal, 64)
    except OSError:
        return STOP
    return read.decode(errors="replace") if read else STOP
