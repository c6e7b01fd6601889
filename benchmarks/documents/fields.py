"""The fields of results as JSON: docs/json.md is made from harness/verdict.py and the records that it holds."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import cache
from typing import Any, Union

import msgspec

from harness.explanations import Explanation
from harness.notes import Note
from harness.reasons import Reason
from harness.verdict import Results

_PLAIN = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    type(None): "null",
}

# Variants that are told apart by one field and hold little: a line each.
_NOTES, _CAUSES = typing.get_args(Note), typing.get_args(Explanation)

# As harness.report.formats.json writes them: sentences where the struct has values, which stand beside them.
_WRITTEN = {
    "notes": ("list of text", "Sentences on what was left out or is worth knowing."),
    "noted": ("list of [notes](#notes)", "The same as values."),
}


def tables() -> str:
    """A section for each record that results hold, then one for notes and one for causes."""
    records = [_section(record) for record in _records()]
    short = [_short_section("notes", "note", _NOTES), _short_section("explanation", "cause", _CAUSES)]
    return "\n".join([*records, *short])


def _records() -> list[type[msgspec.Struct]]:
    """From results inwards, each once, bases before what extends them."""
    found: dict[type[msgspec.Struct], None] = {}
    waiting: list[type[msgspec.Struct]] = [Results]
    while waiting:
        record = waiting.pop(0)
        if record in found or record in (*_NOTES, *_CAUSES):
            continue
        found.update(dict.fromkeys((*_bases(record), record)))
        for extended in (*_bases(record), record):
            waiting += [inner for kind in _own(extended).values() for inner in _structs(kind)]
    return list(found)


def _bases(record: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """Records whose fields it has, too."""
    return [base for base in reversed(record.__mro__[1:]) if issubclass(base, msgspec.Struct) and _own(base)]


def _own(record: type[msgspec.Struct]) -> dict[str, Any]:
    """Its own fields' types, by name."""
    hints = typing.get_type_hints(record)
    return {name: hints[name] for name in inspect.get_annotations(record) if name in record.__struct_fields__}


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """Those that a type names."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for inner in typing.get_args(kind):
        yield from _structs(inner)


def _section(record: type[msgspec.Struct]) -> str:
    words = [_doc(record)]
    if (tag := record.__struct_config__.tag) and not record.__name__.startswith("_"):
        words.insert(0, f"`{record.__struct_config__.tag_field}` is `{tag}`.")
    if bases := _bases(record):
        words.append(f"Beside these fields it has those of {_links(bases)}.")
    rows = [_row(record, name, kind) for name, kind in _own(record).items()]
    if "notes" in _own(record):
        rows.append(_line("noted", *_WRITTEN["noted"]))
    table = "\n".join(["| field | type | what it is |", "|---|---|---|", *rows])
    return f"## {_title(record)}\n\n{' '.join(filter(None, words))}\n\n{table}\n"


def _row(record: type[msgspec.Struct], name: str, kind: Any) -> str:
    if name in _WRITTEN:
        return _line(name, *_WRITTEN[name])
    return _line(name, _shown(kind), _said(record).get(name, "Null here." if kind is type(None) else ""))


def _line(name: str, kind: str, what: str) -> str:
    return f"| `{name}` | {kind} | {what} |"


def _shown(kind: Any) -> str:
    """A type in words."""
    arguments = typing.get_args(kind)
    if (origin := typing.get_origin(kind)) in (Union, types.UnionType):
        if set(arguments) <= {*_CAUSES, type(None)}:
            return "[explanation](#explanation) or null"
        return " or ".join(_shown(argument) for argument in arguments)
    if origin is list:
        return f"list of {_shown(arguments[0])}"
    if origin is dict:
        return "object" if arguments[1] is Any else f"{_shown(arguments[1])} by name"
    if origin is tuple:
        return f"list of {len(arguments)} {_shown(arguments[0])}s"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _links([kind])
    if kind is Reason:
        return "[reason](reasons.md)"
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return f"one of {', '.join(f'`{value}`' if value else 'empty' for value in kind)}"
    return _PLAIN[kind]


def _links(records: Iterable[type[msgspec.Struct]]) -> str:
    return ", ".join(f"[{_title(record)}](#{_title(record).lower()})" for record in records)


def _title(record: type[msgspec.Struct]) -> str:
    return record.__name__.removeprefix("_")


def _doc(record: type[msgspec.Struct]) -> str:
    """Its own docstring as one line; empty where it has none: msgspec's would stand in its place."""
    return _of_json(record.__dict__.get("__doc__") or "")


def _of_json(text: str) -> str:
    """A docstring as a line on what is written."""
    return re.sub(r"\bNone\b", "null", " ".join(text.split()))


@cache
def _said(record: type[msgspec.Struct]) -> dict[str, str]:
    """What its source says behind its fields."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    assert isinstance(body, ast.ClassDef)
    said = {}
    for field, behind in zip(body.body, body.body[1:], strict=False):
        match field, behind:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                said[name] = _of_json(text)
    return said


def _short_section(title: str, tag_field: str, variants: Iterable[type[msgspec.Struct]]) -> str:
    rows = [
        f"| `{variant.__struct_config__.tag}` | {', '.join(f'`{name}`' for name in variant.__struct_fields__) or '–'} "
        f"| {_doc(variant)} |"
        for variant in variants
    ]
    head = [f"## {title.capitalize()}", "", f"Told apart by `{tag_field}`.", ""]
    return "\n".join([*head, f"| `{tag_field}` | other fields | what it says |", "|---|---|---|", *rows]) + "\n"
