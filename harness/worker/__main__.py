"""A worker process: `python -m harness.worker SOCKET_FD ARENA_FD`. Started by harness.sandbox."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from harness.wire import Channel, ChannelClosed, Load
from harness.worker.limits import restrict


def main() -> None:
    restrict()
    channel = Channel(socket.socket(fileno=int(sys.argv[1])), judge=False)
    arena_fd = int(sys.argv[2])
    try:
        load = channel.receive()
        assert isinstance(load, Load)
        if load.device == "emulator":
            from harness.device import emulator

            emulator.activate(Path(load.emulator_cache))  # has to come before torch
        from harness.worker.session import Session

        session = Session(load, arena_fd)
        channel.send(session.load(load))
        while True:
            channel.send(session.answer(channel.receive()))
    except ChannelClosed:
        return  # the judge has what it wanted


if __name__ == "__main__":
    main()
