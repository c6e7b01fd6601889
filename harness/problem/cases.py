"""The cases of a problem file: CASES, random_cases(rng), or what get_inputs() gives, each checked with a sentence."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import torch

from harness.errors import UsageError, a_type, misfit, name_of
from harness.inputs import DISTRIBUTIONS, DTYPES
from harness.layouts import LAYOUTS, UPSTREAM_LAYOUTS
from harness.problem.file import said
from harness.problem.kernelbench import call_get_inputs, sorted_out
from harness.problem.values import Case
from harness.settings import DTYPE_NAMES


class _CaseFields(msgspec.Struct, forbid_unknown_fields=True):
    """A case as a problem file writes it: a dict with these keys."""

    name: str
    shapes: list[tuple[int, ...]]
    init: list[Any] = []
    dtype: str = "float32"
    parameter_dtype: str = ""
    distribution: str = "normal"
    layout: str = "contiguous"
    upstream: str = "contiguous"
    gradcheck: bool = False
    batch: bool = False
    timed: bool = False
    scaled: dict[str, Any] | None = None
    emulated: dict[str, Any] | None = None


def read_cases(path: Path, module: ModuleType, random_seed: int) -> tuple[Case, ...]:
    """The cases of a problem file; `random_seed` decides the shapes of its `random_cases`.

    Raises UsageError with a sentence for what is not of the right form."""
    cases = [_case(path, fields) for fields in _list_of_cases(path, "CASES", getattr(module, "CASES", []))]
    if hasattr(module, "random_cases"):
        drawn = _random_cases(path, module, random_seed)
        cases += [_case(path, _named(fields, f"random {i + 1}")) for i, fields in enumerate(drawn)]
    if not cases:
        if getattr(module, "get_inputs", None) is None:
            raise UsageError(f"{path} has neither CASES nor get_inputs(); give it one of them.")
        cases = [_case_from_functions(path, module.get_inputs)]
    _refuse_repeated_names(path, cases)
    return tuple(cases)


def _list_of_cases(path: Path, what: str, value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise UsageError(f"{path}: {what} is {a_type(value)}; it is a list of cases, each a dict.")
    return list(value)


def _random_cases(path: Path, module: ModuleType, random_seed: int) -> list[Any]:
    try:
        drawn = module.random_cases(np.random.default_rng(random_seed))
        drawn = list(drawn) if inspect.isgenerator(drawn) else drawn
    except Exception as error:
        raise UsageError(f"{path}: random_cases(rng) raises {said(path, error)}.") from error
    return _list_of_cases(path, "what random_cases(rng) returns", drawn)


def _named(fields: Any, name: str) -> Any:
    """With that name, whether it has one or not; what is no dict is refused as a case."""
    return {**fields, "name": name} if isinstance(fields, dict) else fields


def _case(path: Path, fields: Any) -> Case:
    fields = _plain(fields)
    _refuse_slips(path, fields)
    try:
        wanted = msgspec.convert(fields, _CaseFields, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: a case is not of the right form: {misfit(error)}. Found {fields!r}.") from error
    for value, known, what in (
        (wanted.dtype, DTYPES, "dtype"),
        (wanted.parameter_dtype or wanted.dtype, DTYPES, "parameter_dtype"),
        (wanted.distribution, DISTRIBUTIONS, "distribution"),
        (wanted.layout, LAYOUTS, "layout"),
        (wanted.upstream, UPSTREAM_LAYOUTS, "upstream layout"),
    ):
        if value not in known:
            near = difflib.get_close_matches(value, known, 1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise UsageError(
                f"{path}: case '{wanted.name}' asks for the {what} '{value}'; known are {', '.join(known)}.{hint}"
            )
    if any(size < 0 for shape in wanted.shapes for size in shape):
        raise UsageError(
            f"{path}: case '{wanted.name}' has shapes={wanted.shapes!r}; a dimension is 0 or more. Give its size."
        )
    if wanted.timed and wanted.shapes and not any(math.prod(shape) for shape in wanted.shapes):
        raise UsageError(f"{path}: case '{wanted.name}' is timed and has no elements: nothing is there to be timed.")
    if wanted.batch and (not wanted.shapes or len({shape[:1] for shape in wanted.shapes}) > 1 or () in wanted.shapes):
        raise UsageError(
            f"{path}: case '{wanted.name}' has batch=True and shapes={wanted.shapes!r}; the inputs must have a first "
            "dimension, and the same one. Leave batch out where it is no batch."
        )
    whole = {**fields, "scaled": None, "emulated": None}
    scaled = _case(path, {**whole, **wanted.scaled}) if wanted.scaled else None
    emulated = _case(path, {**whole, **wanted.emulated}) if wanted.emulated else None
    return Case(
        name=wanted.name,
        shapes=tuple(wanted.shapes),
        init=tuple(wanted.init),
        dtype=DTYPES[wanted.dtype],
        parameter_dtype=DTYPES[wanted.parameter_dtype or wanted.dtype],
        distribution=wanted.distribution,
        layout=wanted.layout,
        upstream=wanted.upstream,
        gradcheck=wanted.gradcheck,
        batch=wanted.batch,
        timed=wanted.timed,
        scaled=scaled,
        emulated=emulated,
    )


def _plain(value: Any, key: object = "") -> Any:
    """A case, or what stands in it behind `key`, as msgspec reads it: plain numbers in place of numpy's, as generators
    draw them, and names of dtypes in place of torch's and of short ones."""
    match value:
        case dict():
            return {name: _plain(each, name) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case tuple():
            return tuple(_plain(each) for each in value)
        case str() if key in ("dtype", "parameter_dtype"):
            return DTYPE_NAMES.get(value, value)
        case torch.dtype():
            return str(value).removeprefix("torch.")
        case np.generic():
            return value.item()
    return value


def _case_from_functions(path: Path, get_inputs: Callable[[], Sequence[Any]]) -> Case:
    """A KernelBench file as one timed case; one call tells its shapes."""
    if inspect.signature(get_inputs).parameters:
        raise UsageError(f"{path}: get_inputs() takes arguments; the convention is a function without any.")
    try:
        # On the meta device if possible: the inputs may be of many GiB.
        tensors, constants = sorted_out(path, call_get_inputs(get_inputs, 0, torch.device("meta")))
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{path}: get_inputs() raises {said(path, error)}.") from error
    return Case(
        name=name_of(path),
        shapes=tuple(tuple(t.shape) for t in tensors),
        dtype=tensors[0].dtype if tensors else torch.float32,
        distribution="get_inputs()",
        timed=True,
        from_functions=True,
        dtypes=tuple(t.dtype for t in tensors),
        constants=constants,
    )


def _refuse_slips(path: Path, fields: Any) -> None:
    """Raises UsageError for the usual mistakes in a case and its stand-ins, which keep their names in the sentence."""
    if not isinstance(fields, dict):
        return
    name = f"case '{fields.get('name', '')}'"
    stand_ins = {f"'{key}' of {name}": fields.get(key) for key in ("scaled", "emulated")}
    for where, keys in {name: fields, **stand_ins}.items():
        if isinstance(keys, dict):
            _refuse_unknown_keys(path, where, keys)
            _refuse_flat_shapes(path, where, keys.get("shapes"))


def _refuse_unknown_keys(path: Path, where: str, keys: dict[Any, Any]) -> None:
    known = _CaseFields.__struct_fields__
    for key in keys:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise UsageError(f"{path}: {where} has the unknown key '{key}'; known are {', '.join(known)}.{hint}")


def _refuse_flat_shapes(path: Path, where: str, shapes: Any) -> None:
    if isinstance(shapes, list | tuple) and shapes and all(isinstance(size, int) for size in shapes):
        raise UsageError(
            f"{path}: {where} has shapes={shapes!r}; shapes is a list with a shape for each input; "
            f"did you mean [{tuple(shapes)}]?"
        )


def _refuse_repeated_names(path: Path, cases: Sequence[Case]) -> None:
    seen: set[str] = set()
    for case in cases:
        if case.name in seen:
            raise UsageError(f"{path}: two cases are named '{case.name}'; each needs a name of its own.")
        seen.add(case.name)
