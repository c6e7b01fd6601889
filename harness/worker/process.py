"""What a worker's process does: load what it needs, restrict itself, answer requests.

A program of its own restricts itself before it loads. A fork of harness.worker.zygote, which has loaded everything,
restricts itself after.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import io
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.garbage import no_garbage_collection
from harness.protocol.channel import Channel, ChannelClosed, pack
from harness.protocol.handshake import Handshake
from harness.protocol.testimony import Witness
from harness.protocol.wire import Build, Done, Load, Name, Play, Request, Wanted

# On a GPU a worker waits so long for a request without sleeping: the contenders' rounds follow each other within this
# time. On the CPU kernels need the cores, and rounds are long enough for workers to sleep in between.
SPIN_S = 0.3

# setvbuf(3), <stdio.h> of glibc and musl.
_IOLBF = 1


@dataclass(frozen=True)
class Descriptors:
    """Files that a worker inherits from the judge: the socket of its channel, the arena's memory, the page and the bell
    of harness.protocol.handshake, and the pipe of harness.protocol.testimony."""

    socket: int
    arena: int
    page: int
    bell: int
    testimony: int

    @classmethod
    def parse(cls, text: str) -> Descriptors:
        """From numbers with commas between them."""
        return cls(*map(int, text.split(",")))


@no_garbage_collection()
def load(device: str, emulator_cache: Path, modules: Sequence[str] = ()) -> None:
    """Load torch with the device's hooks, and `modules`."""
    own = ["harness.worker.session"]
    if device == "emulator":
        from harness.device import emulator

        emulator.activate(emulator_cache)  # has to come before torch
        own.append("harness.worker.emulated")
    for module in (*own, *modules):
        importlib.import_module(module)


def print_line_by_line() -> None:
    """What a submission prints, from C as from Python, is in its file when the line ends: a worker is killed at its
    end, and what stands in buffers then is gone."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, _IOLBF, ctypes.c_size_t(0))


def answer(descriptors: Descriptors, device: str, emulator_cache: Path) -> None:
    """Reach the device, load what the judge names, and answer until the judge closes the channel."""
    from harness.worker.building import build
    from harness.worker.devices import open_memory
    from harness.worker.session import Session

    print_line_by_line()
    channel = Channel(socket.socket(fileno=descriptors.socket), judge=False)
    handshake = Handshake(descriptors.page, socket.socket(fileno=descriptors.bell), spins=device == "cuda")
    witness = Witness(descriptors.testimony)
    try:
        memory = open_memory(device, descriptors.arena)
        witness.mark()
        channel.send(Done())
        request = channel.receive()
        if isinstance(request, Build):
            built = build(request, emulator_cache)
            witness.mark()
            channel.send(built)
            return
        assert isinstance(request, Load)

        def want(wanted: Wanted) -> Request:
            packed = pack(wanted)
            witness.mark()
            channel.send_packed(packed)
            return channel.receive()

        session = Session(request, device, memory, handshake, emulator_cache, witness, want)
        loaded = session.load(request)
        witness.mark()
        channel.send(loaded)
        while True:
            if device == "cuda":
                channel.spin(SPIN_S)
            request = channel.receive()
            # The judge's clock runs until the reply is there: without this, the first list that is made after a round
            # would collect the round's garbage.
            with no_garbage_collection() if isinstance(request, Play | Name) else contextlib.nullcontext():
                # Packed before the device has finished: Python's time for it then overlaps the device's.
                reply = pack(session.answer(request))
                failed = session.wait_for_device()
                if not isinstance(request, Play):  # the clock runs until the reply is there
                    witness.mark()
                channel.send_packed(pack(failed) if failed else reply)
    except ChannelClosed:
        return
