"""A worker process: `python -m harness.worker SOCKET_FD ARENA_FD TURNS_FDS DEVICE EMULATOR_CACHE WRITABLE
[MODULE…]`.

Started by harness.isolation.sandbox. It loads torch (and MODULEs) and reaches its device before it is told what to
run, so that this happens while the judge still loads.
"""

from __future__ import annotations

import importlib
import socket
import sys
from pathlib import Path

from harness.protocol.turns import Turns
from harness.protocol.wire import Channel, ChannelClosed, Done, Load, pack
from harness.worker.limits import restrict

# Rounds of the contenders on a GPU follow each other within this time, and each begins by waking a worker.
# On the CPU the cores belong to the kernels, and rounds are long enough for workers to sleep in between.
SPIN_S = 0.3


def main() -> None:
    restrict(sys.argv[6])
    channel = Channel(socket.socket(fileno=int(sys.argv[1])), judge=False)
    arena_fd, device, emulator_cache = int(sys.argv[2]), sys.argv[4], Path(sys.argv[5])
    turns = Turns.open(sys.argv[3], spins=device == "cuda")
    if device == "emulator":
        from harness.device import emulator

        emulator.activate(emulator_cache)  # has to come before torch
    from harness.worker.session import Session, open_memory

    for module in sys.argv[7:]:
        importlib.import_module(module)
    try:
        memory = open_memory(device, arena_fd)
        channel.send(Done())
        load = channel.receive()
        assert isinstance(load, Load)
        session = Session(load, device, memory, turns, emulator_cache)
        channel.send(session.load(load))
        while True:
            if device == "cuda":
                channel.spin(SPIN_S)
            # The reply is ready before the device is: what Python takes for it is not timed where the device works.
            reply = pack(session.answer(channel.receive()))
            failed = session.wait_for_device()
            channel.send_packed(pack(failed) if failed else reply)
    except ChannelClosed:
        return  # the judge has what it wanted


if __name__ == "__main__":
    main()
