"""What the judge sends to the process that workers are forked from: one message for each worker, with its files."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import msgspec
from msgspec import Struct

# Paths, of which none is longer than 4 KiB.
MAX_MESSAGE_BYTES = 1 << 17
MAX_DESCRIPTORS = 8


class Fork(Struct, frozen=True):
    """One worker: what its environment adds to that of all workers, the folder that it starts in, and the folders that
    it may write to (harness.worker.walls.limits)."""

    environment: dict[str, str]
    folder: str
    writable: str


def send(control: socket.socket, fork: Fork, descriptors: Sequence[int]) -> None:
    """Raises OSError when the other side is gone."""
    socket.send_fds(control, [msgspec.json.encode(fork)], descriptors)


def receive(control: socket.socket) -> tuple[Fork, list[int]] | None:
    """The next worker to fork and its files, as numbers of this process; None when the judge is gone."""
    try:
        message, descriptors, _, _ = socket.recv_fds(control, MAX_MESSAGE_BYTES, MAX_DESCRIPTORS)
    except ConnectionError:
        return None
    return (msgspec.json.decode(message, type=Fork), descriptors) if message else None
