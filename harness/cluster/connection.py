"""The way into a cluster of Ray's."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
from collections.abc import Iterator
from types import ModuleType

from harness.errors import HarnessError, UsageError

MISSING = (
    "--cluster needs the package ray, which is not installed. Install kernelgate's extra 'cluster': "
    "pip install -e '.[cluster]'."
)

# Ray itself tries for minutes where nobody answers.
ANSWERS_S = 10.0


@contextlib.contextmanager
def connected(address: str) -> Iterator[ModuleType]:
    """The module `ray`, connected to the cluster at HOST:PORT while this is open. Raises UsageError where Ray is not
    installed and for what is no address, and HarnessError where no cluster answers that takes this process."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise UsageError(MISSING) from error
    _require_answer(address)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # Ray prints there what nodes fail of
        _connect(ray, address)
        try:
            yield ray
        finally:
            ray.shutdown()


def _connect(ray: ModuleType, address: str) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except Exception as error:
        raise HarnessError(f"The cluster at {address} does not take this process: {_first_sentence(error)}") from error
    finally:
        signal.signal(signal.SIGTERM, before)  # Ray's own would end this process with nothing said


@contextlib.contextmanager
def said_by_ray(ray: ModuleType) -> Iterator[None]:
    """What Ray raises in here, such as that its head is gone, is a HarnessError."""
    try:
        yield
    except ray.exceptions.RayError as error:
        raise HarnessError(f"The cluster does not answer any more: {_first_sentence(error)}") from error


def _require_answer(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in address:
        raise UsageError(
            f"--cluster takes HOST:PORT, where 'ray start --head' says that it listens, and '{address}' was given."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWERS_S).close()
    except (OSError, OverflowError) as error:
        raise HarnessError(
            f"No cluster answers at {address}: {error}. 'ray start --head' starts one and says its address."
        ) from error


def _first_sentence(error: Exception) -> str:
    """Ray explains at length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) < 500 else f"{text[:500]} …"
