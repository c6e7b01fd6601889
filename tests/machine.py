"""Sharing the machine between the processes of a test run: what is timed has it to itself.

Every test holds the machine together with others (tests/conftest.py). What runs timed calls waits until nobody else
does, and is alone for as long: on two cores a compiler beside it is half of what is measured.
"""

import contextlib
import fcntl
import os
import tempfile

# Locks of this user's, for all checkouts: two test runs at a time keep out of each other's way as well.
_FOLDER = os.path.join(tempfile.gettempdir(), f"kernelgate-tests-{os.getuid()}")


def _open(name):
    os.makedirs(_FOLDER, exist_ok=True)
    return os.open(os.path.join(_FOLDER, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


_room = _open("room")
_door = _open("door")  # held while entering: one that wants to be alone is not overtaken for ever


def _enter(how):
    fcntl.flock(_door, fcntl.LOCK_EX)
    try:
        fcntl.flock(_room, how)
    finally:
        fcntl.flock(_door, fcntl.LOCK_UN)


@contextlib.contextmanager
def shared():
    """Be one of several that use the machine."""
    _enter(fcntl.LOCK_SH)
    try:
        yield
    finally:
        fcntl.flock(_room, fcntl.LOCK_UN)


@contextlib.contextmanager
def alone():
    """Be the only one; also for somebody who was one of several, and is again afterwards."""
    fcntl.flock(_room, fcntl.LOCK_UN)  # two that waited for each other to leave would wait for ever
    _enter(fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(_room, fcntl.LOCK_SH)
