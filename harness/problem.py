"""A problem file becomes a Problem: its reference model and its cases.

Problem files are trusted: they run in the judging process. The convention is KernelBench's (`Model`,
`get_inputs`, `get_init_inputs`); `CASES` and `random_cases` extend it, see docs/problems.md.
"""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import math
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import torch

from harness.errors import UsageError
from harness.inputs import DISTRIBUTIONS, DTYPES, LAYOUTS, UPSTREAM_LAYOUTS, draw
from harness.paths import PROBLEMS
from harness.protocol.arguments import arguments
from harness.protocol.values import encode_value

# What a problem file may set, beside its functions and Model.
SETTINGS = ("CASES", "ALLOWED_OPS", "FORBIDDEN_OPS", "GRADIENTS", "DETERMINISTIC", "RANDOM", "OPERATOR")


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
    timed: bool = False
    scaled: dict[str, Any] | None = None
    emulated: dict[str, Any] | None = None


@dataclass(frozen=True)
class Case:
    """One set of shapes and data on which a submission is judged.

    `shapes` are the shapes of the inputs, all of one `dtype`, `distribution` and `layout`; `init` the
    constructor's arguments. `upstream` is how upstream gradients lie in memory, `gradcheck` whether
    torch.autograd.gradcheck runs. `scaled` is a smaller stand-in for devices that are CPUs, `emulated` a still
    smaller one for the emulator. A case with `from_functions` draws from the problem's own `get_inputs` and
    `get_init_inputs` instead; `dtypes` are then those of the inputs, and `constants` what else is among them, such as
    a number, by its position.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...] = ()
    init: tuple[Any, ...] = ()
    dtype: torch.dtype = torch.float32
    parameter_dtype: torch.dtype = torch.float32
    distribution: str = "normal"
    layout: str = "contiguous"
    upstream: str = "contiguous"
    gradcheck: bool = False
    timed: bool = False
    scaled: Case | None = None
    emulated: Case | None = None
    from_functions: bool = False
    dtypes: tuple[torch.dtype, ...] = ()
    constants: Mapping[int, Any] = field(default_factory=dict)

    def on(self, device: str) -> Case:
        """The case that `device` runs in its place: what a CPU times in milliseconds takes the emulator seconds."""
        if device == "cuda":
            return self
        return (self.emulated if device == "emulator" else None) or self.scaled or self

    @property
    def shape_text(self) -> str:
        return ", ".join("×".join(map(str, shape)) or "scalar" for shape in self.shapes)


@dataclass(frozen=True)
class Problem:
    """A loaded problem file."""

    name: str
    path: Path
    model: type[torch.nn.Module]
    cases: tuple[Case, ...]
    allowed_ops: frozenset[str]
    """Normalisation operators that a submission may call all the same, by their ATen names."""
    forbidden_ops: frozenset[str]
    """Operators that a submission must not call beside those, by their ATen names."""
    gradients: tuple[str, ...] | None
    """What is differentiated, by the names of inputs and parameters; empty for all that can be, None for a
    problem without a backward."""
    deterministic: bool
    """Whether results have to be bitwise equal from run to run."""
    random: dict[int, str]
    """Outputs that are random in training, and the name of the reference's module that makes each so."""
    get_inputs: Callable[[], Sequence[Any]] | None
    get_init_inputs: Callable[[], Sequence[Any]] | None

    def init_args(self, case: Case, seed: int) -> tuple[Any, ...]:
        """The constructor's arguments for `case`."""
        if not case.from_functions or self.get_init_inputs is None:
            return case.init
        torch.manual_seed(seed)
        return tuple(self.get_init_inputs())

    def draw_inputs(self, case: Case, seed: int, device: torch.device) -> list[torch.Tensor]:
        """The inputs of `case`, drawn from `seed`, contiguous, on `device`."""
        if case.from_functions:
            return [tensor.detach().to(device).contiguous() for tensor in self._called(case, seed, device)]
        generator = torch.Generator(device).manual_seed(seed)
        return [draw(case.distribution, shape, case.dtype, generator) for shape in case.shapes]

    def _called(self, case: Case, seed: int, device: torch.device) -> list[torch.Tensor]:
        """The tensors of get_inputs(). Raises UsageError when what else it gives is not the case's."""
        assert self.get_inputs is not None
        tensors, constants = _sorted_out(self.path, _call(self.get_inputs, seed, device))
        for position in {*constants, *case.constants}:
            now, before = constants.get(position, "a tensor"), case.constants.get(position, "a tensor")
            if now != before:
                raise UsageError(
                    f"{self.path}: get_inputs() gave {now!r} as input {position}, and {before!r} before; what is no "
                    "tensor must be the same in each call. Make it a constant, or a tensor without dimensions."
                )
        return tensors

    def build_model(self, case: Case, seed: int, device: torch.device) -> torch.nn.Module:
        """The reference on `device`, its weights random: drawn from `seed`, never all ones or zeros."""
        torch.manual_seed(seed)
        model = _with_constants(self.model, case.constants)(*self.init_args(case, seed))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.is_floating_point() and _is_constant(parameter):
                    parameter.add_(torch.randn(parameter.shape), alpha=0.5)
        if not case.from_functions:
            model = model.to(case.parameter_dtype)
        return model.to(device)


def _with_constants(model: type[torch.nn.Module], constants: Mapping[int, Any]) -> type[torch.nn.Module]:
    """`model`, its forward taking tensors only."""
    if not constants:
        return model

    class WithConstants(model):  # type: ignore[misc, valid-type]
        def forward(self, *tensors: torch.Tensor) -> Any:
            return super().forward(*arguments(tensors, constants))

    signature = inspect.signature(model.forward)
    kept = [p for i, p in enumerate(signature.parameters.values(), -1) if i not in constants]  # -1 is `self`
    WithConstants.forward.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return WithConstants


def _is_constant(parameter: torch.Tensor) -> bool:
    return parameter.numel() == 0 or bool((parameter == parameter.flatten()[0]).all())


def load_problem(path: Path, random_seed: int) -> Problem:
    """Load a problem file; `random_seed` decides the shapes of its `random_cases`.

    Raises UsageError with a sentence when the file is missing or does not follow the convention.
    """
    module = _import(path)
    model = _attribute(path, module, "Model", type)
    _refuse_misspelt_settings(path, module)
    get_inputs = getattr(module, "get_inputs", None)
    cases = [_case(path, fields) for fields in _list_of_cases(path, "CASES", getattr(module, "CASES", []))]
    if hasattr(module, "random_cases"):
        drawn = _random_cases(path, module, random_seed)
        cases += [replace(_case(path, fields), name=f"random {i + 1}") for i, fields in enumerate(drawn)]
    if not cases:
        if get_inputs is None:
            raise UsageError(f"{path} has neither CASES nor get_inputs(); give it one of them.")
        cases = [_case_from_functions(path, get_inputs)]
    _refuse_repeated_names(path, cases)
    return Problem(
        name=path.stem,
        path=path,
        model=model,
        cases=tuple(cases),
        allowed_ops=_operators(path, module, "ALLOWED_OPS"),
        forbidden_ops=_operators(path, module, "FORBIDDEN_OPS"),
        gradients=_gradients(path, module, cases),
        deterministic=bool(getattr(module, "DETERMINISTIC", False)),
        random=_random_outputs(path, module),
        get_inputs=get_inputs,
        get_init_inputs=getattr(module, "get_init_inputs", None),
    )


def _import(path: Path) -> ModuleType:
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in PROBLEMS.glob("*.py"))) or "none"
        raise UsageError(f"There is no problem file {path}. Known problems: {known}.")
    spec = importlib.util.spec_from_file_location(f"problem_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"The problem file {path} cannot be loaded: {_said(path, error)}.{_submission_hint(path)}"
        ) from error
    return module


def _said(path: Path, error: BaseException) -> str:
    """An error's type and message, and the line of the problem file that it comes from."""
    of_the_file = isinstance(error, SyntaxError) and error.filename is not None and _is(path, error.filename)
    message = error.msg if isinstance(error, SyntaxError) and of_the_file else str(error)
    line = _line(path, error)
    where = "" if line is None else f" (line {line})"
    return f"{type(error).__name__}: {message.rstrip('.')}{where}"


def _line(path: Path, error: BaseException) -> int | None:
    """The problem file's own line that `error` comes from: what raised it may lie in a library that it calls."""
    if isinstance(error, SyntaxError) and error.filename is not None and _is(path, error.filename):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if _is(path, frame.filename)), None)


def _is(path: Path, filename: str) -> bool:
    return Path(filename).absolute() == path.absolute()


def _submission_hint(path: Path) -> str:
    """A sentence for a file that defines ModelNew and no Model. Read from its text: it may not load."""
    text = path.read_text(errors="replace")
    defined = re.findall(r"^(?:class\s+)?(Model|ModelNew)\s*[(:=]", text, re.MULTILINE)
    if "ModelNew" not in defined or "Model" in defined:
        return ""
    return (
        " It defines ModelNew and no Model, so it looks like a submission and not a problem: --problem takes the file "
        "whose Model is the reference."
    )


def _attribute(path: Path, module: ModuleType, name: str, kind: type) -> Any:
    value = getattr(module, name, None)
    if not isinstance(value, kind):
        raise UsageError(
            f"{path} defines no {name}; a problem needs a class of that name as its reference.{_submission_hint(path)}"
        )
    return value


def _refuse_misspelt_settings(path: Path, module: ModuleType) -> None:
    """A setting that is not read would protect nothing, and nobody would notice."""
    for name in vars(module):
        meant = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.85) if name.isupper() else []
        if meant and not hasattr(module, meant[0]):
            raise UsageError(f"{path} sets {name}, which nothing reads; {meant[0]} was meant? If not, rename it.")


def _operators(path: Path, module: ModuleType, setting: str) -> frozenset[str]:
    """Operators that FORBIDDEN_OPS or ALLOWED_OPS names. What torch does not know would be forbidden to no effect."""
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


def _random_outputs(path: Path, module: ModuleType) -> dict[int, str]:
    value = getattr(module, "RANDOM", {})
    try:
        return msgspec.convert(value, dict[int, str])
    except msgspec.ValidationError:
        raise UsageError(
            f"{path}: RANDOM is {value!r}; it is a dict of an output's number and the name of the reference's module "
            'that makes it random, such as {0: "dropout"}.'
        ) from None


def _list_of_cases(path: Path, what: str, value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise UsageError(f"{path}: {what} is a {type(value).__name__}; it is a list of cases, each a dict.")
    return list(value)


def _random_cases(path: Path, module: ModuleType, random_seed: int) -> list[Any]:
    try:
        drawn = module.random_cases(np.random.default_rng(random_seed))
        drawn = list(drawn) if inspect.isgenerator(drawn) else drawn
    except Exception as error:
        raise UsageError(f"{path}: random_cases(rng) raises {_said(path, error)}.") from error
    return _list_of_cases(path, "what random_cases(rng) returns", drawn)


def _gradients(path: Path, module: ModuleType, cases: Sequence[Case]) -> tuple[str, ...] | None:
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


def _refuse_slips(path: Path, fields: Any) -> None:
    """Raises UsageError for the usual mistakes in a case, and in its stand-ins, which are named as they are written."""
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


def _case(path: Path, fields: Any) -> Case:
    _refuse_slips(path, fields)
    try:
        wanted = msgspec.convert(fields, _CaseFields, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: a case in CASES is not of the right form: {error}. Found {fields!r}.") from error
    for value, known, what in (
        (wanted.dtype, DTYPES, "dtype"),
        (wanted.parameter_dtype or wanted.dtype, DTYPES, "parameter_dtype"),
        (wanted.distribution, DISTRIBUTIONS, "distribution"),
        (wanted.layout, LAYOUTS, "layout"),
        (wanted.upstream, UPSTREAM_LAYOUTS, "upstream layout"),
    ):
        if value not in known:
            raise UsageError(
                f"{path}: case '{wanted.name}' asks for the {what} '{value}'; known are {', '.join(known)}."
            )
    if wanted.timed and wanted.shapes and not any(math.prod(shape) for shape in wanted.shapes):
        raise UsageError(f"{path}: case '{wanted.name}' is timed and has no elements: nothing is there to be timed.")
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
        timed=wanted.timed,
        scaled=scaled,
        emulated=emulated,
    )


def _case_from_functions(path: Path, get_inputs: Callable[[], Sequence[Any]]) -> Case:
    """A KernelBench file as one timed case; it is called once here to learn its shapes."""
    if inspect.signature(get_inputs).parameters:
        raise UsageError(f"{path}: get_inputs() takes arguments; the convention is a function without any.")
    try:
        # Without memory where that can be: they may be of many GiB.
        tensors, constants = _sorted_out(path, _call(get_inputs, 0, torch.device("meta")))
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{path}: get_inputs() raises {_said(path, error)}.") from error
    return Case(
        name=path.stem,
        shapes=tuple(tuple(t.shape) for t in tensors),
        dtype=tensors[0].dtype if tensors else torch.float32,
        distribution="get_inputs()",
        timed=True,
        from_functions=True,
        dtypes=tuple(t.dtype for t in tensors),
        constants=constants,
    )


def _call(get_inputs: Callable[[], Any], seed: int, device: torch.device) -> Any:
    """What get_inputs() gives, drawn on `device`: billions of numbers take a minute on a CPU. Where it insists on
    another place, as numpy does, what it gives there."""
    torch.manual_seed(seed)
    try:
        with device:
            return get_inputs()
    except Exception:
        if device.type == "cpu":
            raise
    torch.manual_seed(seed)
    return get_inputs()


def _sorted_out(path: Path, values: Any) -> tuple[list[torch.Tensor], dict[int, Any]]:
    """The tensors among inputs, and what else there is, by its position."""
    if not isinstance(values, list | tuple):
        raise UsageError(f"{path}: get_inputs() returned a {type(values).__name__}; it returns a list of inputs.")
    constants = {i: value for i, value in enumerate(values) if not isinstance(value, torch.Tensor)}
    for position, value in constants.items():
        try:
            encode_value(value)
        except TypeError:
            raise UsageError(
                f"{path}: get_inputs() returned a {type(value).__name__} as input {position}; inputs are tensors, "
                "numbers, strings, None, and lists, tuples and dicts of the last four. Make it one of these."
            ) from None
    return [value for value in values if isinstance(value, torch.Tensor)], constants


def _refuse_repeated_names(path: Path, cases: Sequence[Case]) -> None:
    seen: set[str] = set()
    for case in cases:
        if case.name in seen:
            raise UsageError(f"{path}: two cases are named '{case.name}'; each needs a name of its own.")
        seen.add(case.name)
