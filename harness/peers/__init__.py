"""Other implementations to be compared with, where they are installed: `--against unfused,liger`.

A peer is a file in this folder; its name is what `--against` takes. The file sets

    DISTRIBUTION      the distribution whose version is reported, a string literal
    NEEDS_GPU         True where its kernels run on a GPU alone; may be left out
    IMPLEMENTATIONS   operator -> what takes the constructor arguments of the problem's Model, and its defaults by
                      their names, and gives a module with its parameters

and imports the public functions of its package. Nothing else names it, but the extra `peers` in pyproject.toml, which
installs the package. Peers run in workers of their own, are judged like a submission on each case before they are
timed on it, and may refuse: whatever they raise becomes a note.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import KernelgateError


class NotAvailable(KernelgateError):
    """The package is not installed here, or has nothing for the problem; the text says which."""


@dataclass(frozen=True)
class Peer:
    """`build` takes the constructor arguments of the problem's Model and gives a module with its parameters."""

    build: Callable[..., Any]
    version: str


def find(folders: Iterable[str]) -> dict[str, str]:
    """The peers in these folders by name, each with its distribution. Files that begin with _ are none.

    Raises ValueError for a file that declares no distribution."""
    return {file.stem: _distribution(file) for file in _files(folders)}


def _files(folders: Iterable[str]) -> list[Path]:
    return sorted(file for folder in folders for file in Path(folder).glob("[!_]*.py"))


def _distribution(file: Path) -> str:
    declared = _declared(file, "DISTRIBUTION")
    if declared is None:
        raise ValueError(f"{file} sets no DISTRIBUTION; a peer names the distribution whose version is reported.")
    return str(declared)


def _declared(file: Path, name: str) -> Any:
    """Read from the text: without its package a peer's file cannot be imported, and the judge never imports one."""
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return ast.literal_eval(node.value)
    return None


# How `--against` calls them -> the distribution whose version is reported.
DISTRIBUTIONS = find(__path__)

# Those that nothing but a GPU runs.
NEED_GPU = frozenset(file.stem for file in _files(__path__) if _declared(file, "NEEDS_GPU"))


def load(name: str, operator: str) -> Peer:
    """The implementation of `operator` that the package behind `name` has: a problem's OPERATOR, or the name of its
    file. Raises NotAvailable."""
    distribution = DISTRIBUTIONS[name]
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError as error:
        raise NotAvailable(f"{distribution} is not installed here.") from error
    try:
        module = importlib.import_module(f"{__name__}.{name}")
    except (ImportError, OSError) as error:  # OSError: a library that the package needs is missing
        raise NotAvailable(
            f"{distribution} {version} is installed here, and cannot be imported ({type(error).__name__}: {error})."
        ) from error
    if operator not in module.IMPLEMENTATIONS:
        known = ", ".join(module.IMPLEMENTATIONS)
        raise NotAvailable(f"{distribution} has nothing for {operator}; it has {known}.")
    return Peer(module.IMPLEMENTATIONS[operator], f"{distribution} {version}")
