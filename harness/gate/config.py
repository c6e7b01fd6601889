"""What is asked of a merge: `kernelgate.toml`, and options of the same names, which go before it."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from harness.errors import UsageError, misfit, misfit_of_few

FILE = "kernelgate.toml"

Device = Literal["cuda", "cpu", "emulator"]
_ARCHITECTURE = "^sm_[0-9]{2,3}[a-z]?$"
Architecture = Annotated[str, Meta(pattern=_ARCHITECTURE)]
Share = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0)]


class Config(Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """The keys of kernelgate.toml. What is left out suits a runner without a GPU."""

    problems: tuple[str, ...] = ()
    """Names, or files beside kernelgate.toml; all for none."""
    devices: tuple[Device, ...] = ()
    """Each must give a verdict; for none the one that suits a submission on this machine."""
    min_speedup: Share | None = None
    """Over eager; the whole interval."""
    no_slower_than_best: Literal["itself", "problem", "off"] = "itself"
    """The fastest stored evaluation of the same submission, or of any to the same problem."""
    max_spills: Count | None = None
    """Bytes that a thread of any kernel may spill, stores and loads together."""
    max_registers: Count | None = None
    """Of a thread."""
    require_check: bool = True
    """A submission with CUDA kernels is judged on the emulator, too, with all detectors."""
    require_isolation: bool = False
    """Workers have namespaces, or nothing is run."""
    compile_for: tuple[Architecture, ...] = ()
    """Architectures that kernels are compiled for, where nvcc is."""


KEYS = tuple(field.encode_name for field in msgspec.structs.fields(Config))


def read(path: Path) -> Config:
    """Raises UsageError for a file that cannot be read, is no TOML, or has a key or a value that is not known."""
    try:
        return _made(tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}.") from error


def with_options(config: Config, given: Mapping[str, Any]) -> Config:
    """`config` with options, by the keys' names. Raises UsageError for a value that none may have."""
    return _made(msgspec.to_builtins(config) | dict(given), "The command line")


def _made(values: Mapping[str, Any], where: str) -> Config:
    for key in values:
        if key not in KEYS:
            raise UsageError(f"{where} has the key '{key}', which is none. {_instead(key)}")
    try:
        return msgspec.convert(values, Config)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {_misfit(values, error)}.") from error


def _misfit(values: Mapping[str, Any], error: msgspec.ValidationError) -> str:
    architectures = values.get("compile-for")
    if isinstance(architectures, list | tuple):
        for each in architectures:
            if isinstance(each, str) and not re.search(_ARCHITECTURE, each):
                return f"compile-for has {each!r}, which is no architecture; write it as sm_80 or sm_90a"
    hints = {field.encode_name: field.type for field in msgspec.structs.fields(Config)}
    return misfit_of_few(hints, values) or misfit(error)


def _instead(key: str) -> str:
    near = difflib.get_close_matches(key.replace("_", "-"), KEYS, 1)
    return f"Did you mean '{near[0]}'?" if near else f"Keys are {', '.join(KEYS)}."
