"""What a library asks of others, by its symbols; and what the dynamic linker says where nothing defines one."""

from __future__ import annotations

import ctypes
import functools
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    if not (functions := _demangler()):
        return symbol
    demangle, free = functions
    status = ctypes.c_int()
    text = demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not text:
        return symbol
    try:
        return ctypes.string_at(text).decode(errors="replace")
    finally:
        free(ctypes.c_void_p(text))


@functools.cache
def _demangler() -> tuple[Any, Any] | None:
    """What demangles, and what frees its result; None where the C++ library is another. A library has thousands of
    symbols, and to load it for each takes longer than all that is done with them."""
    try:
        demangle, free = ctypes.CDLL("libstdc++.so.6").__cxa_demangle, ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return None
    demangle.restype = ctypes.c_void_p  # to be freed, which c_char_p would lose
    return demangle, free


# The ELF-64 file format, little-endian (System V ABI, chapters 4 and 5), as the dynamic linker reads it: by segments.
# Sections are for other tools, and a file can do without.
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_SEGMENTS_AT, _SEGMENT_COUNT_AT = 0x20, 0x38
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_PLTRELSZ, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_JMPREL = 0, 2, 4, 5, 6, 7, 8, 23
_DT_GNU_HASH = 0x6FFFFEF5
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
    segments = _segments(data)
    tags = _dynamic(data, segments)
    if _DT_SYMTAB not in tags:
        return
    at, names = _place(segments, tags[_DT_SYMTAB]), _place(segments, tags[_DT_STRTAB])
    for i in range(_count(data, segments, tags)):
        name, _, _, section, _, _ = _SYMBOL.unpack_from(data, at + i * _SYMBOL.size)
        start = names + name
        yield data[start : data.index(b"\0", start)].decode(errors="replace"), section


def _segments(data: bytes) -> list[tuple[int, ...]]:
    """The program headers: kind, flags, offset, address, physical address, bytes in the file, in memory, alignment."""
    (table_at,) = struct.unpack_from("<Q", data, _SEGMENTS_AT)
    (count,) = struct.unpack_from("<H", data, _SEGMENT_COUNT_AT)
    return [_SEGMENT.unpack_from(data, table_at + i * _SEGMENT.size) for i in range(count)]


def _place(segments: list[tuple[int, ...]], address: int) -> int:
    """Where in the file what is loaded at `address` lies; of segments that overlap the last is loaded over the others.
    Raises ValueError where nothing of the file is loaded there."""
    for kind, _, offset, start, _, size, *_ in reversed(segments):
        if kind == _PT_LOAD and start <= address < start + size:
            return offset + address - start
    raise ValueError("an address that is not in the file")


def _dynamic(data: bytes, segments: list[tuple[int, ...]]) -> dict[int, int]:
    """The dynamic section's values by their tags."""
    tags: dict[int, int] = {}
    for address in [segment[3] for segment in segments if segment[0] == _PT_DYNAMIC]:
        at = _place(segments, address)
        while (entry := struct.unpack_from("<qQ", data, at))[0] != _DT_NULL:
            tags[entry[0]] = entry[1]
            at += 16
    return tags


def _count(data: bytes, segments: list[tuple[int, ...]], tags: dict[int, int]) -> int:
    """How many symbols there are: all that a relocation names, and all that a hash table has. Nothing else says it."""
    count = 1
    if _DT_HASH in tags:
        count = max(count, struct.unpack_from("<II", data, _place(segments, tags[_DT_HASH]))[1])
    if _DT_GNU_HASH in tags:
        count = max(count, _count_of_gnu_hash(data, _place(segments, tags[_DT_GNU_HASH])))
    for where, size in ((_DT_RELA, _DT_RELASZ), (_DT_JMPREL, _DT_PLTRELSZ)):
        if where in tags and tags.get(size):
            at = _place(segments, tags[where])
            for _, info, _ in _RELOCATION.iter_unpack(
                data[at : at + tags[size] // _RELOCATION.size * _RELOCATION.size]
            ):
                count = max(count, (info >> 32) + 1)
    return count


def _count_of_gnu_hash(data: bytes, at: int) -> int:
    """Chains follow the buckets, each ends where a hash's lowest bit is set, and the highest bucket's is the last."""
    buckets, first, bloom_words, _ = struct.unpack_from("<IIII", data, at)
    at += 16 + 8 * bloom_words
    last = max(struct.unpack_from(f"<{buckets}I", data, at), default=0)
    if last < first:
        return first
    at += 4 * buckets
    while not struct.unpack_from("<I", data, at + 4 * (last - first))[0] & 1:
        last += 1
    return last + 1
