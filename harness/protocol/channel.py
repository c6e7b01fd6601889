"""A socket that carries the messages of harness.protocol.wire, each with its length before it, decoded strictly."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

import msgspec

from harness.errors import KernelgateError
from harness.protocol.wire import Reply, Request

# The largest message is the list of outputs of a round: some hundreds of references of 200 bytes.
MAX_MESSAGE_BYTES = 1 << 20

# A side that reads nothing for so long counts as gone: the judge must not wait for ever.
SEND_TIMEOUT_S = 60.0

_HEADER = struct.Struct("!I")

_REQUESTS = msgspec.json.Decoder(Request)
_REPLIES = msgspec.json.Decoder(Reply)


class ChannelClosed(KernelgateError):
    """The other side is gone."""


class ChannelTimeout(KernelgateError):
    """No complete message came in time."""


class BadMessage(KernelgateError):
    """What came is not a message of this protocol."""


def pack(message: Request | Reply) -> bytes:
    """A message as it travels. Raises BadMessage when it is too large."""
    body = msgspec.json.encode(message)
    if len(body) > MAX_MESSAGE_BYTES:
        raise BadMessage(f"a message of {len(body):,} bytes is larger than {MAX_MESSAGE_BYTES:,}")
    return _HEADER.pack(len(body)) + body


class Channel:
    """One end of a socket pair that carries length-prefixed messages."""

    def __init__(self, sock: socket.socket, *, judge: bool) -> None:
        self._socket = sock
        self._decoder: msgspec.json.Decoder = _REPLIES if judge else _REQUESTS

    def send(self, message: Request | Reply) -> None:
        """Raises ChannelClosed when the other side is gone, BadMessage when the message is too large."""
        self.send_packed(pack(message))

    def send_packed(self, packed: bytes) -> None:
        """Send what `pack` made. Raises ChannelClosed when the other side is gone or does not read."""
        self._socket.settimeout(SEND_TIMEOUT_S)
        try:
            self._socket.sendall(packed)
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def spin(self, for_s: float) -> bool:
        """Whether something can be read within `for_s` seconds; waits without sleeping.

        On a virtual machine a sleeping process takes 50 to 200 µs to wake, and not the same each time."""
        self._socket.setblocking(False)
        deadline = time.perf_counter() + for_s
        while True:
            try:
                self._socket.recv(1, socket.MSG_PEEK)
                return True
            except BlockingIOError:
                if time.perf_counter() >= deadline:
                    return False
            except OSError:
                return True  # receive() says what it is

    def unread(self) -> bool:
        """Whether a message waits to be read. A closed connection is none."""
        self._socket.setblocking(False)
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def receive(self, timeout_s: float | None = None) -> Any:
        """The next message. Raises ChannelTimeout, ChannelClosed or BadMessage."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        (size,) = _HEADER.unpack(self._exactly(_HEADER.size, deadline))
        if size > MAX_MESSAGE_BYTES:
            raise BadMessage(f"a message announced {size:,} bytes; at most {MAX_MESSAGE_BYTES:,} are read")
        try:
            return self._decoder.decode(self._exactly(size, deadline))
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadMessage(str(error)) from error

    def fileno(self) -> int:
        return self._socket.fileno()

    def wait(self, timeout_s: float) -> bool:
        """Whether something can be read within `timeout_s` seconds, a closed connection included; sleeps."""
        self._socket.settimeout(timeout_s)
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK)) or True
        except TimeoutError:
            return False
        except OSError:
            return True

    def _exactly(self, count: int, deadline: float | None) -> bytes:
        chunks = bytearray()
        while len(chunks) < count:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise ChannelTimeout
            self._socket.settimeout(left)
            try:
                chunk = self._socket.recv(count - len(chunks))
            except TimeoutError as error:
                raise ChannelTimeout from error
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            if not chunk:
                raise ChannelClosed("the connection ended")
            chunks += chunk
        return bytes(chunks)

    def close(self) -> None:
        self._socket.close()
