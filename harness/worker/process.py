"""What the process of a worker does: load what it needs, take from itself what a submission must not have, answer.

Loading comes first or second: a process of its own restricts itself before, and one that was forked from a process
which had loaded everything (harness.worker.zygote) after.
"""

from __future__ import annotations

import contextlib
import importlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.protocol.channel import Channel, ChannelClosed, pack
from harness.protocol.handshake import Handshake, no_garbage_collection
from harness.protocol.wire import Done, Load, Name, Play

# Rounds of the contenders on a GPU follow each other within this time, and each begins by waking a worker.
# On the CPU the cores belong to the kernels, and rounds are long enough for workers to sleep in between.
SPIN_S = 0.3


@dataclass(frozen=True)
class Descriptors:
    """What a worker has from the judge: the socket to answer through, the arena's memory, and the page and the bell of
    harness.protocol.handshake."""

    socket: int
    arena: int
    page: int
    bell: int

    @classmethod
    def parse(cls, text: str) -> Descriptors:
        """From numbers with commas between them."""
        return cls(*map(int, text.split(",")))


def load(device: str, emulator_cache: Path, modules: Sequence[str] = ()) -> None:
    """Load torch with the device's hooks, and `modules`."""
    own = ["harness.worker.session"]
    if device == "emulator":
        from harness.device import emulator

        emulator.activate(emulator_cache)  # has to come before torch
        own.append("harness.worker.emulated")
    for module in (*own, *modules):
        importlib.import_module(module)


def answer(descriptors: Descriptors, device: str, emulator_cache: Path) -> None:
    """Reach the device, load what the judge names, and answer until it wants no more."""
    from harness.worker.devices import open_memory
    from harness.worker.session import Session

    channel = Channel(socket.socket(fileno=descriptors.socket), judge=False)
    handshake = Handshake(descriptors.page, socket.socket(fileno=descriptors.bell), spins=device == "cuda")
    try:
        memory = open_memory(device, descriptors.arena)
        channel.send(Done())
        request = channel.receive()
        assert isinstance(request, Load)
        session = Session(request, device, memory, handshake, emulator_cache)
        channel.send(session.load(request))
        while True:
            if device == "cuda":
                channel.spin(SPIN_S)
            request = channel.receive()
            # What a round left would be collected by the first list that is made when its calls are over, and the
            # judge's clock runs until the reply is there.
            with no_garbage_collection() if isinstance(request, Play | Name) else contextlib.nullcontext():
                # It is ready before the device is: what Python takes for it is not timed where the device works.
                reply = pack(session.answer(request))
                failed = session.wait_for_device()
                channel.send_packed(pack(failed) if failed else reply)
    except ChannelClosed:
        return  # the judge has what it wanted
