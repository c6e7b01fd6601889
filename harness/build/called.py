"""What a call of `load_inline` asks for, from its arguments: as it is made, or as it is written."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.build.canonical import canonical
from harness.build.locate import locate
from harness.errors import NOT_PARSED
from harness.protocol.extension import Extension, SourceText

# Of a longer file nothing is read: its tree would have up to 500 times as many bytes.
MAX_PARSED_BYTES = 1 << 20

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
        tree = ast.parse(source) if len(source) <= MAX_PARSED_BYTES else ast.Module([], [])
    except (OSError, *NOT_PARSED):
        return []
    values = dict(_named(tree))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_load_inline(node.func):
            try:
                found.append(extension(submission, **_arguments(node, values)))
            except (TypeError, ValueError, RecursionError):  # not literal, or no call that load_inline takes
                continue
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
    return {name: _value(node, values) for name, node in given.items() if name in decide}


def _value(node: ast.expr, values: Mapping[str, ast.expr]) -> Any:
    """Raises ValueError for what is no literal, RecursionError for a name that is bound to itself."""
    match node:
        case ast.Name(id=name) if name in values:
            return _value(values[name], values)
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_value(part, values) for part in parts]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _value(left, values) + _value(right, values)
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
