"""Other implementations to be compared with, where they are installed: `--against unfused,liger`.

A file each, with a class for each operator that it has; all of them are written against the public functions
of their packages. They run in workers of their own, are judged like a submission on each case before they are
timed on it, and may refuse: whatever they raise becomes a note.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.errors import KernelgateError

# How `--against` calls them -> the distribution whose version is reported.
DISTRIBUTIONS = {
    "unfused": "torch",
    "liger": "liger-kernel",
    "apex": "apex",
    "cudnn": "nvidia-cudnn-frontend",
    "quack": "quack-kernels",
}


class NotAvailable(KernelgateError):
    """The package is not installed here, or has nothing for the problem; the text says which."""


@dataclass(frozen=True)
class Peer:
    """`build` takes the constructor arguments of the problem's Model and gives a module with its parameters."""

    build: Callable[..., Any]
    version: str


def load(name: str, operator: str) -> Peer:
    """The implementation of `operator` that the package behind `name` has: a problem's OPERATOR, or the name of its
    file. Raises NotAvailable."""
    distribution = DISTRIBUTIONS[name]
    try:
        module = importlib.import_module(f"{__name__}.{name}")
        version = importlib.metadata.version(distribution)
    except (ImportError, OSError) as error:  # OSError: a library that the package needs is missing
        raise NotAvailable(f"{distribution} is not installed here ({type(error).__name__}: {error}).") from error
    if operator not in module.IMPLEMENTATIONS:
        known = ", ".join(module.IMPLEMENTATIONS)
        raise NotAvailable(f"{distribution} has nothing for {operator}; it has {known}.")
    return Peer(module.IMPLEMENTATIONS[operator], f"{distribution} {version}")
