"""What a library asks of others, by its symbols; and what the dynamic linker says where nothing defines one."""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Iterator
from pathlib import Path

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


# The ELF-64 file format, little-endian (System V ABI, chapters 4 and 5).
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SECTIONS_AT, _SECTION_COUNT_AT = 0x28, 0x3C
_SHT_DYNSYM = 11
_SHN_UNDEF = 0


def undefined(library: Path) -> list[str]:
    """The symbols that a shared library takes from others, as they are mangled. Raises ValueError for what is no 64-bit
    ELF file, or a broken one."""
    return [name for name, section in _symbols(library) if section == _SHN_UNDEF]


def defined(library: Path) -> list[str]:
    """The symbols that a shared library gives others. Raises ValueError as `undefined` does."""
    return [name for name, section in _symbols(library) if section != _SHN_UNDEF]


def _symbols(library: Path) -> list[tuple[str, int]]:
    data = library.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{library} is no 64-bit little-endian ELF file")
    try:
        return [(name, section) for name, section in _dynamic_symbols(data) if name]
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise ValueError(f"{library} is a broken ELF file") from error


def _dynamic_symbols(data: bytes) -> Iterator[tuple[str, int]]:
    """Name and section of each."""
    (table_at,) = struct.unpack_from("<Q", data, _SECTIONS_AT)
    (count,) = struct.unpack_from("<H", data, _SECTION_COUNT_AT)
    sections = [_SECTION.unpack_from(data, table_at + i * _SECTION.size) for i in range(count)]
    for _, kind, _, _, at, size, strings, *_ in sections:
        if kind == _SHT_DYNSYM:
            names = sections[strings][4]
            for name, _, _, section, _, _ in _SYMBOL.iter_unpack(data[at : at + size]):
                start = names + name
                yield data[start : data.index(b"\0", start)].decode(errors="replace"), section
