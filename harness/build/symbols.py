"""What the dynamic linker says of a library that lacks a definition, in C++'s words."""

from __future__ import annotations

import ctypes
import re

_UNDEFINED = re.compile(r"undefined symbol: (\S+)")


def missing_definition(message: str) -> str | None:
    """A sentence for an error of importing an extension, or None when it is another error."""
    found = _UNDEFINED.search(message)
    if not found:
        return None
    name = demangled(found[1]).replace("at::Tensor", "torch::Tensor")
    return (
        f"Nothing defines {name}, which is declared and used, as in cpp_sources: a declaration and its definition "
        "must have the same name and the same arguments."
    )


def demangled(symbol: str) -> str:
    """'_Z3runN2at6TensorEd' -> 'run(at::Tensor, double)', by the C++ library that torch is linked to (Itanium C++ ABI,
    __cxa_demangle); as it is where it is no such name."""
    try:
        demangle, free = ctypes.CDLL("libstdc++.so.6").__cxa_demangle, ctypes.CDLL(None).free
    except (OSError, AttributeError):  # another C++ library
        return symbol
    demangle.restype = ctypes.c_void_p  # to be freed, which c_char_p would lose
    status = ctypes.c_int()
    text = demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not text:
        return symbol
    try:
        return ctypes.string_at(text).decode(errors="replace")
    finally:
        free(ctypes.c_void_p(text))
