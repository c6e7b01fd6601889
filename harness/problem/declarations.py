"""What a problem file sets beside its cases, each checked with a sentence."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import msgspec
import torch

from harness.errors import UsageError
from harness.problem.values import DEFAULT_TOLERANCE_FACTOR, Case

# What a problem file may set, beside its functions and Model.
SETTINGS = (
    "CASES",
    "ALLOWED_OPS",
    "FORBIDDEN_OPS",
    "GRADIENTS",
    "DETERMINISTIC",
    "RANDOM",
    "OPERATOR",
    "TOLERANCE_FACTOR",
)

# What the value of a setting may be, and a module or a function may not.
_VALUES = (list, tuple, set, frozenset, dict, str, bool, int, float)


def refuse_misspelt_settings(path: Path, module: ModuleType) -> None:
    """A misspelt setting is not read, and would protect nothing."""
    for name, value in vars(module).items():
        meant = _setting_like(name, value)
        if meant and not hasattr(module, meant):
            raise UsageError(f"{path} sets {name}, which nothing reads; {meant} was meant? If not, rename it.")


def _setting_like(name: str, value: object) -> str | None:
    """The setting that a name of the module may stand for; in small letters only letter by letter, and only of a value:
    files import `random` and `operator`."""
    if name.isupper():
        return next(iter(difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.85)), None)
    return name.upper() if name.upper() in SETTINGS and isinstance(value, _VALUES) else None


def operators(path: Path, module: ModuleType, setting: str) -> frozenset[str]:
    """Operators that FORBIDDEN_OPS or ALLOWED_OPS names. To forbid one that torch does not know has no effect."""
    names = getattr(module, setting, ())
    if not isinstance(names, list | tuple | set | frozenset) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{path}: {setting} is {names!r}; it is a list of names of ATen operators, such as ['gelu'].")
    for name in names:
        if not _is_operator(name):
            known = [full.removeprefix("aten::") for full in torch._C._dispatch_get_all_op_names()]
            near = difflib.get_close_matches(name.removeprefix("aten::"), known, n=1)
            raise UsageError(
                f"{path}: {setting} names '{name}', and torch {torch.__version__} has no ATen operator of that name"
                f"{f'; did you mean {near[0]!r}?' if near else '.'}"
            )
        if setting == "ALLOWED_OPS" and "." in name:
            operator = name.split(".")[0]
            raise UsageError(f"{path}: ALLOWED_OPS names the overload '{name}'; it takes operators: '{operator}'.")
    return frozenset(names)


def _is_operator(name: str) -> bool:
    """Whether ATen has the operator, or its overload after a dot: 'gelu', 'gelu.out'."""
    operator, dot, overload = name.partition(".")
    packet = getattr(torch.ops.aten, operator, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return False
    return overload in packet.overloads() if dot else True


def random_outputs(path: Path, module: ModuleType) -> dict[int, str]:
    """RANDOM: outputs by number, and the module that makes each random."""
    value = getattr(module, "RANDOM", {})
    try:
        return msgspec.convert(value, dict[int, str])
    except msgspec.ValidationError:
        raise UsageError(
            f"{path}: RANDOM is {value!r}; it is a dict of an output's number and the name of the reference's module "
            'that makes it random, such as {0: "dropout"}.'
        ) from None


def gradients(path: Path, module: ModuleType, cases: Sequence[Case]) -> tuple[str, ...] | None:
    """GRADIENTS, which is True or a list of names, as names."""
    value = getattr(module, "GRADIENTS", False)
    if isinstance(value, bool):
        names: tuple[str, ...] | None = () if value else None
    elif isinstance(value, tuple | list) and value and all(isinstance(name, str) for name in value):
        names = tuple(value)
    else:
        raise UsageError(
            f"{path}: GRADIENTS is {value!r}; it is True, or a list of names of inputs of Model.forward and of "
            "Model's parameters."
        )
    for case in cases:
        if names is None and (case.gradcheck or case.upstream != "contiguous"):
            raise UsageError(f"{path}: case '{case.name}' speaks of gradients, and GRADIENTS is not set.")
        if case.gradcheck and case.dtype is not torch.float64:
            raise UsageError(f"{path}: case '{case.name}' asks for gradcheck, which needs dtype 'float64'.")
        if case.timed and case.upstream == "expanded":
            raise UsageError(f"{path}: case '{case.name}' is timed; its upstream gradient cannot be 'expanded'.")
    return names


def tolerance_factor(path: Path, module: ModuleType) -> float:
    """TOLERANCE_FACTOR: how many error bounds a result may be off."""
    value = getattr(module, "TOLERANCE_FACTOR", DEFAULT_TOLERANCE_FACTOR)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= sys.float_info.max:
        raise UsageError(
            f"{path}: TOLERANCE_FACTOR is {value!r}; it is a finite number above 0: how many error bounds a result may "
            f"be off, {DEFAULT_TOLERANCE_FACTOR:g} where nothing is set."
        )
    return float(value)
