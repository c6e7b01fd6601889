"""How an extension's `functions` are given to Python: by pybind11 as torch does it, or without where they are plain."""

from __future__ import annotations

import json
import re

from harness.protocol.extension import Extension

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_IGNORED = re.compile(r"^[ \t]*#[ \t]*(include\b.*|pragma[ \t]+once)[ \t]*$", re.MULTILINE)
_TENSOR = r"(?:torch|at)::Tensor"
_NUMBER = r"double|float|bool|(?:unsigned )?(?:int|long|long long)|unsigned|(?:std::)?(?:u?int(?:32|64)_t|size_t)"
_TAKEN = rf"(?:{_TENSOR}|(?:std|c10)::optional<{_TENSOR}>|std::vector<{_TENSOR}>|{_NUMBER})"
_GIVEN = rf"(?:void|{_TENSOR}|std::vector<{_TENSOR}>|std::tuple<{_TENSOR}(?:,{_TENSOR})*>|{_NUMBER})"
_PARAMETER = re.compile(rf"(?:const )?{_TAKEN}(?: ?const)? ?&? ?\w*")
_DECLARATION = re.compile(rf"{_GIVEN} (?P<name>\w+) ?\((?P<takes>[^(){{}};]*)\)")


def with_pybind11(extension: Extension) -> str:
    """The C++ text that torch would put behind `cpp_sources`, except that launch errors nobody looked at are raised."""
    if not extension.functions:
        return ""
    lines = [
        f"m.def({json.dumps(name)}, ::emu::checked(&{name}), {json.dumps(doc)});" for name, doc in extension.functions
    ]
    return "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n" + "\n".join(lines) + "\n}\n"


def without_pybind11(extension: Extension, module_name: str) -> str:
    """C++ text for behind `cuda_sources` that does the same, and compiles sooner; empty where it might not: where
    `cpp_sources` are more than declarations of functions that take and give tensors and numbers."""
    declared = _declared("\n".join(piece.text for piece in extension.cpp_sources))
    names = [name for name, _ in extension.functions]
    if not names or any(declared.count(name) != 1 for name in names):
        return ""
    functions = ", ".join(
        f"::emu::bind::Bound<&{name}>::named({json.dumps(name)}, {json.dumps(doc)})"
        for name, doc in extension.functions
    )
    return (
        f'extern "C" __attribute__((visibility("default"))) ::_object* PyInit_{module_name}() {{\n'
        f"return ::emu::bind::module({json.dumps(module_name)}, {{{functions}}});\n}}\n"
    )


def _declared(text: str) -> list[str]:
    """The functions that `text` declares; none if there is anything else in it."""
    names = []
    for statement in _IGNORED.sub("", _COMMENT.sub(" ", text)).split(";"):
        plain = re.sub(r"\s*([<>,&])\s*", r"\1", " ".join(statement.split())).replace("&", " &").replace(">", "> ")
        plain = re.sub(r" +", " ", plain).strip()
        if not plain:
            continue
        found = _DECLARATION.fullmatch(plain)
        if not found or not all(_is_plain(parameter) for parameter in _split(found["takes"])):
            return []
        names.append(found["name"])
    return names


def _split(parameters: str) -> list[str]:
    """At commas; none of the types that are let through has one."""
    return parameters.split(",") if parameters.strip() else []


def _is_plain(parameter: str) -> bool:
    without_default = parameter.split("=")[0].strip()
    return _PARAMETER.fullmatch(re.sub(r" +", " ", without_default)) is not None
