"""A submission file, read as text: the judging process never imports it."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import NOT_PARSED, UsageError, name_of, one_line
from harness.paths import SUBMISSIONS, usual_submissions

# What somebody may write who writes kernels, and far less than the judge's memory.
MAX_BYTES = 16 << 20

# Of a longer source it is not worked out what it uses: its tree would have up to 500 times as many bytes.
MAX_PARSED_BYTES = 1 << 20

# A constructor's default that is written in more characters is passed over.
MAX_DEFAULT = 40

# Where load_inline(name, cpp_sources, cuda_sources, ...) takes CUDA sources by their place.
_CUDA_SOURCES = 2

# Modules in whose languages kernels are written that the emulator does not run.
LANGUAGES = {"triton": "Triton", "cutlass": "CuTe DSL", "tilelang": "TileLang", "cupy": "CuPy"}


@dataclass(frozen=True)
class Submission:
    """`name` is how reports call it. What it needs is read from its source: `uses_cuda` that it speaks of CUDA,
    `builds` that it calls load_inline, `gpu_language` the language of kernels that only a GPU runs.
    `brings_cuda` that importing it gives CUDA sources to load_inline, whatever the device.
    `also_for` names the problems that it is judged on beside its folder's: its `ALSO_FOR`. `defaults` are those of
    its constructor's arguments that are written as values, with their names."""

    name: str
    path: Path
    sha256: str
    uses_cuda: bool
    builds: bool = False
    gpu_language: str = ""
    also_for: tuple[str, ...] = ()
    brings_cuda: bool = False
    defaults: tuple[tuple[str, Any], ...] = ()

    @property
    def is_host_code(self) -> bool:
        """Whether it builds C++ without CUDA."""
        return self.builds and not self.uses_cuda


def read_submission(path: Path) -> Submission:
    """Raises UsageError when the file is none of Python's by its name, cannot be read, or its ALSO_FOR. Whether it is
    Python, its worker finds out."""
    if path.suffix != ".py":
        raise UsageError(
            f"{path} is no Python file. A submission is one, FILE.py, and its CUDA source is a text in it, for "
            "load_inline; 'eval.py new PROBLEM FILE.py' writes one to begin with."
        )
    data = content(path)
    return Submission(
        name=name_of(path),
        path=path.resolve(),
        sha256=hashlib.sha256(data).hexdigest(),
        **_needs(path, data),
    )


def content(path: Path) -> bytes:
    """A submission's bytes. Raises UsageError when it cannot be read, or is larger than any would be."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise UsageError(f"The submission {path} is no file.")
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"The submission {path} cannot be read: {error}.") from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"The submission {path} has more than {MAX_BYTES >> 20} MiB, which is the most that is read.")
    return data


def _needs(path: Path, source: bytes) -> dict[str, Any]:
    """What Submission says of a source."""
    nodes = _nodes(source)
    if nodes is None:
        return {"uses_cuda": b"cuda" in source, "builds": b"load_inline" in source}
    imported = {name.partition(".")[0] for node in nodes for name in _imported(node)}
    languages = [LANGUAGES[name] for name in LANGUAGES if name in imported]
    return {
        "uses_cuda": _uses_cuda(nodes),
        "builds": any(_builds(node) for node in nodes),
        # An import takes no file that gives CUDA sources away from the emulator.
        "gpu_language": languages[0] if languages and not any(map(_gives_cuda, nodes)) else "",
        "also_for": _also_for(path, nodes[0], source),
        "brings_cuda": _brings_cuda(nodes[0]),
        "defaults": _defaults(nodes[0]),
    }


def _defaults(module: ast.AST) -> tuple[tuple[str, Any], ...]:
    """Of the arguments of ModelNew's own __init__, those that stand there as numbers, short texts, truth values or
    None."""
    assert isinstance(module, ast.Module)
    models = [node for node in module.body if isinstance(node, ast.ClassDef) and node.name == "ModelNew"]
    functions = [node for model in models for node in model.body if isinstance(node, ast.FunctionDef)]
    found: dict[str, Any] = {}
    for arguments in (function.args for function in functions if function.name == "__init__"):
        named = [*arguments.posonlyargs, *arguments.args]
        pairs = [*zip(named[len(named) - len(arguments.defaults) :], arguments.defaults, strict=True)]
        pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d]
        found |= {argument.arg: ast.literal_eval(default) for argument, default in pairs if _is_plain(default)}
    return tuple(found.items())


def _is_plain(node: ast.expr) -> bool:
    """Whether it is one short value, with a sign or without."""
    if isinstance(node, ast.UnaryOp):
        is_number = isinstance(node.operand, ast.Constant) and type(node.operand.value) in (int, float)
        return is_number and isinstance(node.op, ast.USub | ast.UAdd) and _is_plain(node.operand)
    short = node.end_lineno == node.lineno and (node.end_col_offset or 0) - node.col_offset <= MAX_DEFAULT
    return short and isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str | None)


def _also_for(path: Path, module: ast.AST, source: bytes) -> tuple[str, ...]:
    """What the module's ALSO_FOR lists. Raises UsageError where that is more than text: nothing is run to know it."""
    assert isinstance(module, ast.Module)
    names: tuple[str, ...] = ()
    for statement in module.body:
        if isinstance(statement, ast.Assign) and any(_is_also_for(target) for target in statement.targets):
            values = statement.value.elts if isinstance(statement.value, ast.List | ast.Tuple) else [statement.value]
            named = [value.value for value in values if isinstance(value, ast.Constant)]
            names = tuple(name for name in named if isinstance(name, str))
            if len(names) < len(values) or not isinstance(statement.value, ast.List | ast.Tuple):
                lines = source.splitlines()[statement.lineno - 1 : statement.lineno]  # none in some codecs
                text = b"".join(lines).decode(errors="replace").partition("=")[2].strip()
                raise UsageError(
                    f"{path}: ALSO_FOR (line {statement.lineno}) is `{one_line(text[:80])}`; write names of problems "
                    'there, each in quotes, as in ALSO_FOR = ["layernorm_dtypes"].'
                )
    return names


def _is_also_for(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id == "ALSO_FOR"


def _nodes(source: bytes) -> list[ast.AST] | None:
    """None for what is too long, or no Python."""
    if len(source) > MAX_PARSED_BYTES:
        return None
    try:
        return [*ast.walk(ast.parse(source))]
    except NOT_PARSED:
        return None


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def _builds(node: ast.AST) -> bool:
    """Whether it speaks of load_inline."""
    named = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
    return "load_inline" in named or (isinstance(node, ast.Attribute) and node.attr == "load_inline")


def _is_load_inline(function: ast.expr) -> bool:
    return "load_inline" in (getattr(function, "id", ""), getattr(function, "attr", ""))


def _gives_cuda(node: ast.AST) -> bool:
    """Whether it gives load_inline CUDA sources."""
    if isinstance(node, ast.keyword) and node.arg == "cuda_sources":
        return not (isinstance(node.value, ast.Constant) and not node.value.value)
    return isinstance(node, ast.Call) and _is_load_inline(node.func) and bool(_by_place(node))


def _speaks_of_cuda(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.startswith("cuda")
    return isinstance(node, ast.Attribute) and node.attr == "cuda"


def _uses_cuda(nodes: list[ast.AST]) -> bool:
    """Whether any code, comments aside, speaks of CUDA: a `cuda_sources` argument, `.cuda()`, "cuda". Where that
    argument is always empty, what else speaks of CUDA decides nothing."""
    if any(map(_gives_cuda, nodes)):
        return True
    if any(isinstance(node, ast.keyword) and node.arg == "cuda_sources" for node in nodes):
        return False
    return any(map(_speaks_of_cuda, nodes))


def _brings_cuda(module: ast.AST) -> bool:
    """Whether a statement of the module's own is a call of load_inline, or an attribute of what that gives, with CUDA
    sources: texts that stand there, or that another such statement names. What stands under a condition or in a
    function may never be run."""
    assert isinstance(module, ast.Module)
    assigned = [statement for statement in module.body if isinstance(statement, ast.Assign)]
    texts = {
        target.id
        for statement in assigned
        if _is_text(statement.value, set())
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    values = [
        _without_attributes(statement.value)
        for statement in module.body
        if isinstance(statement, ast.Assign | ast.Expr)
    ]
    calls = [value for value in values if isinstance(value, ast.Call) and _is_load_inline(value.func)]
    return any(_is_text(sources, texts) for call in calls for sources in _cuda_sources(call))


def _without_attributes(value: ast.expr) -> ast.expr:
    return _without_attributes(value.value) if isinstance(value, ast.Attribute) else value


def _cuda_sources(call: ast.Call) -> list[ast.expr]:
    """What a call of load_inline has in that place."""
    named = [keyword.value for keyword in call.keywords if keyword.arg == "cuda_sources"]
    return named + _by_place(call)


def _by_place(call: ast.Call) -> list[ast.expr]:
    return call.args[_CUDA_SOURCES : _CUDA_SOURCES + 1]


def _is_text(value: ast.expr, names: Collection[str]) -> bool:
    """Whether it is a text that is not empty, the name of one, or a list that begins with one."""
    if isinstance(value, ast.List | ast.Tuple):
        return bool(value.elts) and _is_text(value.elts[0], names)
    if isinstance(value, ast.Name):
        return value.id in names
    return isinstance(value, ast.Constant) and isinstance(value.value, str) and bool(value.value.strip())


def find_submissions(paths: list[Path], problems: Collection[Path] = ()) -> list[Path]:
    """The submission files that `paths` (files and folders) name; all of submissions/ for none. What else lies in a
    folder under such a name, a folder or a link to nothing, is none; nor is a file of the `problems` that were asked
    for, which may lie beside their submissions.

    Raises UsageError for a path that does not exist.
    """
    found: list[Path] = []
    for path in paths or [usual_submissions()]:
        if path.is_dir():
            files = (p for p in path.rglob("*.py") if p.is_file() and not p.name.startswith(("_", ".")))
            found += sorted(p for p in files if p.resolve() not in problems)
        elif path.exists():
            found.append(path)
        else:
            raise UsageError(f"There is no file or folder {path}.")
    return list(dict.fromkeys(found))


def shipped_for(problem: str) -> list[Path]:
    """The files of submissions/ that are judged on the problem of that name when nobody says another."""
    return [
        path
        for path in find_submissions([SUBMISSIONS])
        if problem in (path.parent.name, *read_submission(path).also_for)
    ]
