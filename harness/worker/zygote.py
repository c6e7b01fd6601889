"""The process that workers are forked from: `python -m harness.worker.zygote CONTROL_FD DEVICE EMULATOR_CACHE`.

It has loaded what every worker of the device needs, which takes a second of processor time, and nothing else: no
submission, no input and no expected value is ever in it. For each message of the judge it forks one worker, which
becomes the judge's child and from there on is what `python -m harness.worker` would be.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

from harness.protocol.fork import Fork, receive
from harness.worker.process import Descriptors, answer, load
from harness.worker.walls.limits import end_with_the_judge, restrict

_PR_SET_DUMPABLE = 4

# How often a new worker looks whether the process between it and the judge is gone: that takes some 0.2 ms.
_LOOK_S = 0.0002


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is in the judge's group, and the judge ends it
    end_with_the_judge()
    # Nobody but the kernel looks into it or traces it: a worker of now must not reach those to come.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    control, device, emulator_cache = socket.socket(fileno=int(sys.argv[1])), sys.argv[2], Path(sys.argv[3])
    load(device, emulator_cache)
    gc.freeze()  # or each worker would look through torch, and copy the pages that it lies in
    worker = serve(control)
    if worker is None:
        return
    fork, descriptors = worker
    _become(fork, *descriptors[:2])
    restrict(fork.writable)
    answer(Descriptors(*descriptors[2:]), device, emulator_cache)


def serve(control: socket.socket) -> tuple[Fork, list[int]] | None:
    """Fork a worker for each message. Returns, in each of them, what it is to be and its files; here None, once the
    judge has closed `control`."""
    while asked := receive(control):
        if _forked():
            control.close()
            return asked
        for descriptor in asked[1]:
            os.close(descriptor)
    return None


def _forked() -> bool:
    """Whether this is the new worker, whose parent is the judge: the process between the two ends at once, and the
    judge adopts orphans."""
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        return False
    between = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == between:
        time.sleep(_LOOK_S)
    return True


def _become(fork: Fork, output: int, announcement: int) -> None:
    """Take on what a process that the judge had started would have: a session, streams, an environment, a folder. Then
    `announcement` gets the worker's number."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.update(fork.environment)
    tempfile.tempdir = None  # what TMPDIR says now
    _draw_seeds()
    os.chdir(fork.folder)
    os.write(announcement, b"%d\n" % os.getpid())
    os.close(announcement)


def _draw_seeds() -> None:
    """Torch draws one when it is loaded, and so does NumPy when its generator is, which all workers would have in
    common. Python's own draws again in a fork."""
    import torch

    torch.default_generator.seed()
    if loaded := sys.modules.get("numpy.random"):
        loaded.seed()


if __name__ == "__main__":
    main()
