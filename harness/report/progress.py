"""Events for people who wait: a status line on a terminal, lines of a log elsewhere; all on standard error."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.text import Text

from harness.events import (
    Building,
    DeviceTaken,
    EmulatorBuilding,
    Event,
    Finished,
    Judging,
    LeftOut,
    Loading,
    Namesake,
    OnCluster,
    OnEvent,
    Queued,
    Sanitizing,
    SeatLost,
    Timing,
    WithoutEffect,
)
from harness.report.formats.terminal import verdict_line
from harness.report.paragraphs import print_paragraph
from harness.report.so_far import SoFar
from harness.report.view import View


@contextlib.contextmanager
def listening(console: Console, view: View, gpus: int = 0) -> Iterator[OnEvent]:
    """What to tell events to while a run lasts, which uses so many `gpus`.

    On a terminal a line says what is being done. Elsewhere each of several submissions is named with its verdict when
    it is judged, the first time that one waits for its turn, and with `verbose` every step. `quiet` says nothing."""
    if view.quiet:
        yield lambda _event: None
    elif console.is_terminal and console.file.isatty():  # a pipe that was to be coloured is none
        with console.status("starting") as status:
            so_far = SoFar(status.update, gpus)
            listener = _Listener(console, so_far.show)

            def tell(event: Event) -> None:
                so_far.count(event)
                listener(event)

            yield tell
    else:
        yield _Listener(console, _Log(console).step if view.verbose else None, names_finished=True)


class _Log:
    """Steps as lines, with the seconds since the first."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started_s = time.monotonic()

    def step(self, text: str) -> None:
        self._console.print(Text(f"{time.monotonic() - self._started_s:7.2f} s  {text}"))


class _Listener:
    """Says steps to `show`, where somebody looks, and everything else on the console."""

    def __init__(self, console: Console, show: Callable[[str], None] | None, *, names_finished: bool = False) -> None:
        self._console = console
        self._show = show
        self._names_finished = names_finished
        self._problems: set[str] = set()
        self._has_waited = False

    def __call__(self, event: Event) -> None:
        if notice := announced(event):
            print_paragraph(self._console, Text(), notice)
        elif isinstance(event, Queued):
            self._problems.add(event.problem)
        elif isinstance(event, Finished):
            self._finished(event)
        elif self._show and (text := _step(event)):
            self._show(text)
        elif isinstance(event, DeviceTaken) and not self._has_waited:  # or a log would look as if it hung
            self._has_waited = True
            print_paragraph(self._console, Text(), f"{_step(event)}.")

    def _finished(self, event: Finished) -> None:
        """The report comes when all are judged; of one alone it comes at once."""
        if self._names_finished and event.count > 1:
            # Of one file there may be several: one for each problem.
            first, *_ = verdict_line(event.evaluation, names_problem=len(self._problems) > 1).split()
            line = Text(f"{event.position} of {event.count}: ").append_text(first)
            self._console.print(line, soft_wrap=True)


def announced(event: Event) -> str:
    """A sentence for who waits or has asked for what does nothing; empty for other events."""
    match event:
        case EmulatorBuilding():
            return "The emulator is built, once for this version of it and of torch: about half a minute."
        case LeftOut():
            return f"Left out: {event.name}, {event.why}."
        case Namesake():
            return f"Not used: {event.file}, since a problem of its name ships. --problem {event.file} judges with it."
        case WithoutEffect():
            return f"Without effect: {', '.join(event.options)}, {event.why}."
        case SeatLost():
            judged = (
                f"; {event.submission} was judged there, and that says nothing about it" if event.submission else ""
            )
            return f"In the cluster: {event.why.rstrip('.')}{judged}."
    return ""


def _step(event: Event) -> str:
    """What is being done; empty where that is nothing to wait for."""
    match event:
        case Loading():
            return f"loading {event.problem} on {event.device}"
        case Building():
            return f"{event.submission}: building"
        case Judging():
            return f"{event.submission}: case {event.position}/{event.count}, {event.case}"
        case DeviceTaken():
            device = "GPU" if event.device == "cuda" else "CPU"
            by = f", which process {event.process} has" if event.process else ""
            return f"{event.submission}: waiting for its turn on the {device}{by}"
        case Timing():
            return f"{event.submission}: timing {event.case}"
        case OnCluster():
            return f"{event.under_way} under way at {event.actors} actors"
        case Sanitizing():
            return f"{event.submission}: {event.tool}"
    return ""
