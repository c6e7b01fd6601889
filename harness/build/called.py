"""What a call of `load_inline` asks for, from its arguments: as it is made, or as it is written."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from harness.build.canonical import canonical
from harness.build.locate import locate
from harness.errors import NOT_PARSED
from harness.protocol.extension import Extension, SourceText

# Of a longer file nothing is read before it is run. What is read is bounded, since a hostile file could have the judge
# work on it for hours: so many calls, parts of an argument, characters and texts of sources.
MAX_READ_BYTES = 1 << 18
MAX_CALLS = 4
MAX_PARTS = 200
MAX_TEXTS = 4

# The order in which load_inline takes what decides a build, and what stands between.
_POSITIONS = (
    "name", "cpp_sources", "cuda_sources", "sycl_sources", "functions", "extra_cflags", "extra_cuda_cflags",
    "extra_sycl_cflags", "extra_ldflags", "extra_include_paths",
)  # fmt: skip

Text = str | Sequence[str] | None


def extension(
    submission: Path,
    name: str,
    cpp_sources: Text,
    cuda_sources: Text = None,
    functions: Text | Mapping[str, str] = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    no_implicit_headers: bool = False,
) -> Extension:
    """Of a call in the file `submission`."""
    return Extension(
        name=name,
        cpp_sources=_sources(cpp_sources, submission),
        cuda_sources=_sources(cuda_sources, submission),
        functions=_functions(functions),
        extra_cflags=tuple(extra_cflags or ()),
        extra_cuda_cflags=tuple(extra_cuda_cflags or ()),
        extra_ldflags=tuple(extra_ldflags or ()),
        extra_include_paths=tuple(extra_include_paths or ()),
        no_implicit_headers=bool(no_implicit_headers),
    )


def written(submission: Path) -> list[Extension]:
    """What the file's calls ask for whose arguments are literals, or names of literals. A guess at what it will ask for
    when it is run: names may be bound anew there."""
    try:
        source = submission.read_bytes()
        tree = ast.parse(source) if len(source) <= MAX_READ_BYTES else ast.Module([], [])
    except (OSError, *NOT_PARSED):
        return []
    values = dict(_named(tree))
    found = []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_load_inline(node.func)]
    for call in calls[:MAX_CALLS]:
        # Not literal, or no call that load_inline takes.
        with contextlib.suppress(TypeError, ValueError, AttributeError, RecursionError):
            asked = extension(submission, **_arguments(call, values))
            found.append(msgspec.json.decode(msgspec.json.encode(asked), type=Extension))
    return found


def _is_load_inline(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name == "load_inline"


def _named(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            yield from ((target.id, statement.value) for target in statement.targets if isinstance(target, ast.Name))


def _arguments(call: ast.Call, values: Mapping[str, ast.expr]) -> dict[str, Any]:
    """Those that decide a build. Raises ValueError where one is no literal."""
    given = dict(zip(_POSITIONS, call.args, strict=False)) | {word.arg or "": word.value for word in call.keywords}
    decide = {*_POSITIONS, "no_implicit_headers"} - {"sycl_sources", "extra_sycl_cflags"}
    if "" in given:
        raise ValueError("**")
    found = {name: _Literal(values).value(node) for name, node in given.items() if name in decide}
    for name in ("cpp_sources", "cuda_sources"):
        if isinstance(found.get(name), list) and len(found[name]) > MAX_TEXTS:
            raise ValueError(name)
    return found


class _Literal:
    """One argument, of at most MAX_PARTS parts: names of names could have any number."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self._values = values
        self._parts = 0

    def value(self, node: ast.expr) -> Any:
        """Raises ValueError for what is no literal, or too long; RecursionError for a name that is bound to itself."""
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise ValueError("too many parts")
        match node:
            case ast.Name(id=name) if name in self._values:
                return self.value(self._values[name])
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [self.value(part) for part in parts]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                both = self.value(left) + self.value(right)
                if len(both) > MAX_READ_BYTES:
                    raise ValueError("too long")
                return both
        return ast.literal_eval(node)


def _sources(sources: Text, submission: Path) -> tuple[SourceText, ...]:
    texts = [sources] if isinstance(sources, str) else list(sources or ())
    located = (locate(text, submission) for text in texts)
    return tuple(replace(source, text=canonical(source.text)) for source in located)


def _functions(functions: Text | Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    if functions is None:
        return ()
    if isinstance(functions, str):
        return ((functions, functions),)
    if isinstance(functions, Mapping):
        return tuple(functions.items())
    return tuple((name, name) for name in functions)
