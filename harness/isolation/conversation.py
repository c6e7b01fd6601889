"""Asking a worker and hearing its answer, within limits of time; and what it means when none comes."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from functools import partial

from harness.errors import SubmissionError
from harness.protocol.channel import BadMessage, Channel, ChannelClosed, ChannelTimeout
from harness.protocol.handshake import Handshake, PeerStatus
from harness.protocol.testimony import Testimony
from harness.protocol.wire import Reply, Request
from harness.reasons import Reason

# What a silent worker holds is looked at so often.
POLL_S = 0.05

# The emulator is compiled at its first use, which takes half a minute on two cores.
STARTUP_TIMEOUT_S = 600.0


class Conversation:
    """The judge's end of the channel, of the handshake and of the testimony of one worker.

    Each method that raises SubmissionError leaves nothing to talk about: the caller then ends the worker."""

    def __init__(
        self,
        channel: Channel,
        handshake: Handshake,
        testimony: Testimony,
        look: Callable[[], None],
        why_gone: Callable[[], SubmissionError],
    ) -> None:
        """`look` raises SubmissionError when the worker holds too much; `why_gone` tells why it closed the channel."""
        self._channel = channel
        self.handshake = handshake
        self._testimony = testimony
        self._check_holdings = look
        self._why_gone = why_gone
        self._peer = PeerStatus(channel.fileno(), partial(channel.spin, 0.0), self._look)
        self._ready = False

    def wait_until_ready(self) -> None:
        """Hear that the worker has loaded torch and reached its device. Raises SubmissionError."""
        if not self._ready:
            self.hear(STARTUP_TIMEOUT_S)
            self._ready = True

    def tell(self, request: Request) -> None:
        """Send a request. Raises SubmissionError when the worker is gone, or has spoken before it was asked. While it
        starts, nothing of a submission has run: then a request may come before its first message is heard."""
        if self._ready and self._channel.unread():
            raise SubmissionError(Reason.BAD_MESSAGE, "The worker sent something that it was not asked for.")
        try:
            self._channel.send(request)
        except ChannelClosed:
            raise self._why_gone() from None

    def hear(self, timeout_s: float, spin_s: float = 0.0) -> Reply:
        """The reply to the last request; waits the first `spin_s` without sleeping. Raises SubmissionError."""
        deadline = time.monotonic() + timeout_s
        try:
            ready = spin_s > 0 and self._channel.spin(spin_s)
            while not ready and not self._channel.wait(min(POLL_S, max(deadline - time.monotonic(), 0.001))):
                if time.monotonic() > deadline:
                    raise ChannelTimeout
                self._look()
            return self._testimony.checked(self._channel.receive(max(deadline - time.monotonic(), 1.0)))
        except ChannelTimeout:
            raise SubmissionError(
                Reason.TIMED_OUT, f"No answer came within {timeout_s:g} s; --timeout gives it longer."
            ) from None
        except BadMessage as error:
            raise SubmissionError(Reason.BAD_MESSAGE, f"The worker sent something that is no reply: {error}.") from None
        except ChannelClosed:
            raise self._why_gone() from None

    def _look(self) -> None:
        """Whether the worker holds too much; and what it has said is taken in, or it could not say more."""
        self._check_holdings()
        self._testimony.read()

    @property
    def has_answered(self) -> bool:
        """Whether the reply to what it was told last is there, or the worker is gone, which `hear` tells."""
        if not self._ready and self._channel.spin(0.0):
            with contextlib.suppress(SubmissionError):
                self.wait_until_ready()
        return self._channel.spin(0.0)

    def wait_for_warm_up(self, timeout_s: float) -> None:
        """Wait until a worker that was told to play waits for its first buffer. If it answers instead, or does not come
        back, `hear` tells. Raises SubmissionError when it holds too much."""
        self.handshake.wait_until_ready(timeout_s, self._peer)

    def hand_out(self, buffers: list[int], timeout_s: float) -> None:
        """Hand `buffers` out one by one to a worker that was told to play; `hear` gives its reply. Raises
        SubmissionError when it holds too much."""
        self.handshake.hand_out(buffers, timeout_s, self._peer)

    def close(self) -> None:
        self._channel.close()
        self.handshake.close()
        self._testimony.close()


def death(code: int | None, *, as_a_shell: bool, tail: str) -> SubmissionError:
    """Why a worker closed its channel: its exit `code`, negative for a signal, None while it runs.

    With `as_a_shell` a code above 128 is a signal, too. `tail` is the end of the message: what the worker printed."""
    if code is None:
        return SubmissionError(Reason.EXITED, f"The process that ran it closed its connection to the judge.{tail}")
    number = -code if code < 0 else code - 128 if as_a_shell else 0
    if number > 0:
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return SubmissionError(Reason.CRASHED, f"The process that ran it was ended by {name}.{tail}")
    return SubmissionError(Reason.EXITED, f"The process that ran it exited with code {code} before answering.{tail}")
