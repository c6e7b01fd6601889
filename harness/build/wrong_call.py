"""What is wrong with a call of `load_inline` and can be seen before a compiler has run for a minute."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence

from harness.errors import KernelgateError
from harness.protocol.extension import Extension

# What makes functions known to Python, or may, without `functions`.
_EXPORTS = re.compile(r"PYBIND11_MODULE|PyInit_|PyMODINIT_FUNC|TORCH_EXTENSION_NAME|NB_MODULE")

# Functions that take or give tensors: what one would want to call.
_TENSOR_FUNCTION = re.compile(r"\b(?:torch|at)::Tensor\s*>?\s+(\w+)\s*\(")

# A declaration that is proposed to be copied is no longer than this.
MAX_DECLARATION = 200


class WrongCall(KernelgateError, TypeError):
    """A call of `load_inline` that no source can make right; the text is a sentence."""


def unknown_keyword(name: str, known: Collection[str]) -> WrongCall:
    """For a keyword that this torch's `load_inline` does not take."""
    near = difflib.get_close_matches(name, known, 1)
    hint = f"Did you mean '{near[0]}'?" if near else f"It takes {', '.join(sorted(known))}."
    return WrongCall(f"load_inline() got an unexpected keyword argument '{name}'. {hint}")


def require_callable(extension: Extension) -> None:
    """Raises WrongCall for an extension of which Python could call nothing, or not what `functions` names. Where macros
    or headers of its own may declare them, the compiler has the word."""
    cpp = [source.text for source in extension.cpp_sources]
    cuda = [source.text for source in extension.cuda_sources]
    if not extension.functions:
        _require_exports(cpp, cuda)
    elif not _is_opaque(extension, [*cpp, *cuda]):
        for name, _ in extension.functions:
            if name.isidentifier():
                _require_declared(name, cpp, cuda)


def _require_exports(cpp: Sequence[str], cuda: Sequence[str]) -> None:
    texts = [*cpp, *cuda]
    if any(_EXPORTS.search(text) for text in texts) or any('#include "' in text for text in texts):
        return
    found = _tensor_functions(texts)
    proposed = f"functions={found!r}" if found else 'functions=["…"]'
    raise WrongCall(
        "load_inline was called without functions=, so Python can call nothing of what it builds. "
        f"Add {proposed.replace(chr(39), chr(34))}."
    )


def _is_opaque(extension: Extension, texts: Sequence[str]) -> bool:
    """Whether names may be declared that stand in no text."""
    return bool(extension.extra_include_paths) or any("##" in text or '#include "' in text for text in texts)


def _require_declared(name: str, cpp: Sequence[str], cuda: Sequence[str]) -> None:
    if _is_named(name, cpp):
        return
    if not _is_named(name, cuda):
        found = _tensor_functions([*cpp, *cuda])
        near = difflib.get_close_matches(name, found, 1)
        there = f" The sources have {', '.join(found)}." if found else ""
        hint = f" Did you mean '{near[0]}'?" if near else there
        raise WrongCall(f"functions= of load_inline names '{name}', which no source declares.{hint}")
    declaration = _declaration(name, cuda)
    raise WrongCall(
        f"functions= of load_inline names '{name}', which cpp_sources does not declare. Give cpp_sources its "
        f"declaration{f': {declaration}' if declaration else '.'}"
    )


def _is_named(name: str, texts: Sequence[str]) -> bool:
    return any(re.search(rf"\b{re.escape(name)}\b", text) for text in texts)


def _tensor_functions(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name for text in texts for name in _TENSOR_FUNCTION.findall(text)))


def _declaration(name: str, texts: Sequence[str]) -> str:
    """What its definition begins with, as a declaration; empty where none is found."""
    for text in texts:
        found = re.search(rf"^[^\n;{{}}#/=]*[\w>&*]\s+{re.escape(name)}\s*\([^()]*\)", text, re.MULTILINE)
        if found:
            declaration = " ".join(found[0].split()) + ";"
            return declaration if len(declaration) <= MAX_DECLARATION else ""
    return ""
