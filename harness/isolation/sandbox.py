"""One worker: a process that runs a submission or a baseline, isolated, limited and ended with all that it started.

Its parts are files of their own: started (its process), home (folders and files), conversation (asking and answering),
family (what it started, and its end), hold (standing still while others are timed), holdings (limits).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeGuard

from harness.errors import HarnessError, SubmissionError
from harness.isolation import processes
from harness.isolation.conversation import Conversation, death
from harness.isolation.family import Family
from harness.isolation.hold import Hold
from harness.isolation.holdings import Holdings
from harness.isolation.home import Home
from harness.isolation.launch import Zygote
from harness.isolation.levels import Isolation
from harness.isolation.started import Role, Started
from harness.protocol.channel import Channel
from harness.protocol.handshake import Handshake
from harness.protocol.testimony import Testimony
from harness.protocol.wire import Failed, Reply, Request
from harness.reasons import Reason

# The judge's processors, read before any submission can change them: it may have all of the judge's privileges.
PROCESSORS = os.sched_getaffinity(0)


class Worker:
    """One worker process. Use as a context manager, or call `end`. Methods that raise SubmissionError have ended it.

    It is long because it is the one face of its parts: its family of processes, the conversation with it, how it is
    held still, and its home. A method hands a request to one of them, and ends the worker where that fails."""

    _alive: set[Worker] = set()  # noqa: RUF012  every worker of this process

    def __init__(
        self,
        device: str,
        arena_fd: int,
        isolation: Isolation,
        readable: Sequence[Path] = (),
        *,
        zygote: Zygote | None = None,
        keeps_compile_cache: bool = False,
    ) -> None:
        """Forked from `zygote`, or a program of its own without one. Raises HarnessError when it cannot be started."""
        processes.adopt_orphans()
        role = Role(device, isolation, readable, keeps_compile_cache)
        self._role = role
        self.home = Home()
        """The folder that holds all of its own: its files, its builds, and what it prints."""
        self._holdings = Holdings(self.home)
        ours, theirs = socket.socketpair()
        channel, handshake = Channel(ours, judge=True), Handshake.create(spins=device == "cuda")
        heard, said = os.pipe()
        testimony = Testimony(heard)
        with theirs, os.fdopen(said, "wb"):
            try:
                self._started = Started(role, self.home, (theirs.fileno(), arena_fd, *handshake.fds, said), zygote)
            except HarnessError:
                channel.close()
                handshake.close()
                testimony.close()
                self.home.remove()
                raise
        handshake.started()
        self._family = Family(self._started.process, _living_families)
        self._hold = Hold(self._family, role.own_processes)
        look = partial(self._holdings.check, self._family)
        self._conversation = Conversation(channel, handshake, testimony, look, self._why_gone)
        self._ended = False
        self._death: int | None = None
        """The exit code of its process, where it ended by itself."""
        Worker._alive.add(self)

    @property
    def pid(self) -> int:
        """The process that runs the worker's code. Raises HarnessError when it could not be started."""
        return self._started.pid

    @property
    def exists(self) -> bool:
        """Whether its process was started at all; waits until that is known."""
        return self._family.exists

    @property
    def has_ended(self) -> bool:
        """Whether there is nobody to ask any more."""
        return self._ended

    def require_room(self) -> None:
        """Raises HarnessError when others have filled the disk: what failed then says nothing about a submission."""
        self._holdings.require_room()

    @property
    def handshake(self) -> Handshake:
        """The judge's end of the handshake."""
        return self._conversation.handshake

    def wait_until_ready(self) -> None:
        """Wait until the worker has loaded torch and reached its device, before it sees any submission.

        Raises HarnessError: what fails here is not a submission's doing."""
        try:
            with self._ended_by_failure():
                self._conversation.wait_until_ready()
        except SubmissionError as error:
            raise HarnessError(f"A worker could not be started: {error.message}") from error

    def tell(self, request: Request) -> None:
        """Send a request; `hear` reads the reply. A worker that is held goes on. It may be told ahead while it starts.

        Raises SubmissionError when the worker is gone, ran while it was held, or has spoken before it was asked."""
        if self._ended:
            raise SubmissionError(Reason.EXITED, "The process that ran it had been ended before.")
        with self._ended_by_failure():
            self._hold.resume()
            self._conversation.tell(request)

    def hear(self, timeout_s: float, spin_s: float = 0.0) -> Reply:
        """The reply to the last request, waited for without sleeping for `spin_s`.

        Raises SubmissionError with crashed, exited, timed_out, bad_message, or what its limits say; Inconclusive where
        others filled the memory that it needed."""
        try:  # the clock may be running: no context manager
            reply = self._conversation.hear(timeout_s, spin_s)
        except SubmissionError as error:
            self._end_for(self._with_the_emulators_part(error))
        if self._says_that_memory_is_out(reply):
            self._end_for(SubmissionError(Reason.OUT_OF_MEMORY, reply.message))
        return reply

    def _with_the_emulators_part(self, error: SubmissionError) -> SubmissionError:
        """An error, or the same with what may be done where the time is the emulator's."""
        if error.reason != Reason.TIMED_OUT or self._role.device != "emulator":
            return error
        smaller = "The emulator is far slower than a GPU: 'emulated' in a case names a smaller one for it"
        return SubmissionError(error.reason, f"{error.message} {smaller} (docs/problems.md).", error.places)

    def _says_that_memory_is_out(self, reply: Reply) -> TypeGuard[Failed]:
        """Whether an allocation of the machine's memory failed; a GPU's is not watched, and its worker may go on."""
        if not isinstance(reply, Failed) or self._role.device == "cuda":
            return False
        return reply.reason == Reason.OUT_OF_MEMORY and not reply.findings

    def ask(self, request: Request, timeout_s: float) -> Reply:
        """The reply to `request`. Raises SubmissionError as `tell` and `hear` do."""
        self.tell(request)
        return self.hear(timeout_s)

    @property
    def has_answered(self) -> bool:
        """Whether the reply to what it was told last is there, or it is gone, which `hear` tells."""
        return self._conversation.has_answered

    def wait_for_warm_up(self, timeout_s: float) -> None:
        """Wait until a worker that was told to play waits for its first buffer. If it answers instead, or does not come
        back, `hear` tells."""
        with self._ended_by_failure():
            self._conversation.wait_for_warm_up(timeout_s)

    def hand_out(self, buffers: list[int], timeout_s: float) -> None:
        """Hand `buffers` out one by one to a worker that was told to play; `hear` gives its reply."""
        try:  # the clock is running: no context manager
            self._conversation.hand_out(buffers, timeout_s)
        except SubmissionError as error:
            self._end_for(error)

    def pause(self) -> None:
        """Stop the worker until it is told something, so that none of it runs while something else is timed.

        Raises SubmissionError when it has processes beside the one that runs it, or does not stop."""
        with self._ended_by_failure():
            self._hold.pause()

    def require_alone(self) -> None:
        """Raises SubmissionError when it has processes beside the one that runs it."""
        with self._ended_by_failure():
            self._hold.require_alone()

    def processor_s(self) -> float:
        """Processor time in seconds that the worker has used so far, with what it had started when it was held last."""
        return self._hold.processor_s(self.pid)

    def regain_processors(self) -> None:
        """Let it run on all of the judge's processors. A submission that sees it and has its user can confine it to one
        core before it is held still itself."""
        if not self._role.isolation.private_tree:
            processes.let_run_on(PROCESSORS, self.pid)

    def kill(self) -> None:
        """Have the worker's group killed without waiting for it; `end` does the rest."""
        self._family.kill()

    def end(self) -> None:
        """Kill the worker, its group, its descendants and its orphans, and remove its folders."""
        if self._ended:
            return
        self._ended = True
        Worker._alive.discard(self)
        self._family.end()
        self._conversation.close()
        self._started.close()
        self.home.remove()

    @classmethod
    def end_all(cls, kept: Collection[Worker] = ()) -> None:
        """End all that live but those `kept`: workers that nobody took, and those of somebody whom an error ended."""
        for worker in cls._alive.difference(kept):
            worker.end()

    @contextlib.contextmanager
    def _ended_by_failure(self) -> Iterator[None]:
        try:
            yield
        except SubmissionError as error:
            self._end_for(error)

    def _end_for(self, error: SubmissionError) -> NoReturn:
        """End it, and raise `error`, or what it was in truth where memory was used up."""
        killed = error.reason == Reason.CRASHED and self._death in (-signal.SIGKILL, 128 + signal.SIGKILL)
        self.end()
        raise self._holdings.of_memory(error.reason, killed=killed) or error

    def _why_gone(self) -> SubmissionError:
        # bubblewrap passes a signal on as a shell does
        as_a_shell = self._role.isolation.level == "namespaces"
        self._death = self._family.exit_code()
        return death(self._death, as_a_shell=as_a_shell, tail=self.home.output_tail())

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.end()


def _living_families() -> Iterable[Family]:
    return [worker._family for worker in Worker._alive]
