"""Kernel launches: `<<<...>>>` and the functions of the cudaLaunch family."""

from __future__ import annotations

import re

from harness.device.emulator.translate.errors import CannotRead, NvccRefuses
from harness.device.emulator.translate.kernels import Kernels
from harness.device.emulator.translate.lexer import Edits, Source, defined_macros, one_line

_API = {
    "cudaLaunchKernel": "",
    "cudaLaunchCooperativeKernel": "",
    "cudaLaunchKernelEx": ".extended",
    "cudaLaunchKernelExC": ".extended_c",
}
_VOID_CAST = re.compile(
    r"\( (?:const )?void (?:const )?\* \) (?P<c>.*)"
    r"|(?:reinterpret_cast|static_cast) < (?:const )?void (?:const )?\* > \( (?P<cxx>.*) \)"
)


def _is_launch(source: Source, i: int) -> bool:
    """Three adjacent `<` begin a launch."""
    tokens = source.tokens
    if [source.at(i + k) for k in range(3)] != ["<"] * 3:
        return False
    return tokens[i].end == tokens[i + 1].start and tokens[i + 1].end == tokens[i + 2].start


def _callee_start(source: Source, launch: int) -> tuple[int, int]:
    """First token of the kernel expression before `<<<`, and its number of explicit template arguments."""
    i, arguments = launch - 1, 0
    if source.at(i) == ">":
        opening = source.opening_angle(i)
        if opening < 0:
            raise CannotRead(launch, "the kernel's name before <<<")
        arguments = len(source.split(opening + 1, i))
        i = opening - 1
    if source.at(i) in (")", "]"):
        i = source.partner.get(i, -1)
        while i > 0 and source.tokens[i - 1].kind == "name":
            i -= 1
    elif i < 0 or source.tokens[i].kind != "name":
        raise CannotRead(launch, "the kernel's name before <<<")
    while source.at(i - 1) in ("::", ".", "->"):
        i -= 1
        if i > 0 and source.tokens[i - 1].kind == "name" and source.at(i - 1) != "return":
            i -= 1
        elif source.at(i - 1) == ">":
            i = max(0, source.opening_angle(i - 1) - 1)
    while source.at(i - 1) == "##":  # a macro puts the name together
        i -= 2
    if source.at(i - 1) == "template":
        i -= 1
    return i, arguments


def _config_end(source: Source, i: int) -> int:
    """Index of the first `>` of the `>>>` that ends the configuration."""
    while i < len(source.tokens):
        if source.at(i) in ("(", "[", "{"):
            i = source.partner.get(i, len(source.tokens))
        elif [source.at(i + k) for k in range(3)] == [">"] * 3 and source.at(i + 3) == "(":
            return i
        elif source.at(i) == ";":
            return -1
        i += 1
    return -1


def _rewrite_launch(source: Source, edits: Edits, kernels: Kernels, i: int) -> None:
    first, arguments = _callee_start(source, i)
    end = _config_end(source, i + 3)
    if end < 0:
        raise CannotRead(i, "the launch after <<<")
    callee = one_line(source.slice(first, i))
    name = re.sub(r"<.*", "", callee).split("::")[-1].strip("() ")
    if name not in kernels.by_name and _is_plain_function(source, name):
        raise NvccRefuses(i, f"'{name}' is launched, and is no kernel: write __global__ before its void.")
    typed = kernels.has_address(name, arguments) or (
        callee == name and name not in kernels.by_name and _is_pointer(source, name)
    )
    address = f"(const void*)({callee})" if typed else "nullptr"
    cluster = kernels.cluster(name)
    clustered = f".in_clusters(dim3({cluster}))" if cluster else ""
    passed = f".typed({callee}" if typed else f".call([&](auto&&... emu_a) {{ {callee}(emu_a...); }}"
    comma = "" if source.at(end + 4) == ")" else ", "
    shown = f"EMU_TEXT({callee})" if "##" in callee else f'"{name}"'
    head = f"::emu::Launcher({shown}, __FILE__, __LINE__, {address}, "
    edits.replace_tokens(first, i + 3, head)
    edits.replace_tokens(end, end + 4, f"){clustered}{passed}{comma}")


def _is_plain_function(source: Source, name: str) -> bool:
    """Whether the text has a function `void name(` with nothing before it that a macro could make a kernel of, and
    gives the name to no macro, which could."""
    macros = defined_macros(source)
    if any(source.at(i + 2) == name and source.at(i) in macros for i in range(len(source.tokens))):
        return False
    for i, token in enumerate(source.tokens):
        if token.text == name and source.at(i + 1) == "(" and source.at(i - 1) == "void":
            before = i - 2
            while before >= 0 and source.at(before) in ("static", "inline"):
                before -= 1
            if before < 0 or source.at(before) in (";", "}", ">"):
                return True
    return False


def _is_pointer(source: Source, name: str) -> bool:
    """Whether the text declares a pointer to a function so: `(*name)(`, `auto name =`, `auto* const name =`."""
    for i, token in enumerate(source.tokens):
        if token.text != name:
            continue
        if [source.at(i + k) for k in (-2, -1, 1, 2)] == ["(", "*", ")", "("]:
            return True
        before = i - 1
        while source.at(before) in ("const", "*"):
            before -= 1
        if source.at(before) == "auto" and source.at(i + 1) == "=":
            return True
    return False


def _kernel_argument(text: str) -> str:
    """The kernel itself: casts to void* would lose its parameter types."""
    match = _VOID_CAST.fullmatch(text)
    return (match["c"] or match["cxx"]).strip() if match else text


def _rewrite_api(source: Source, edits: Edits, kernels: Kernels, i: int) -> None:
    after = i + 1
    if source.at(after) == "<":
        after = source.closing_angle(after) + 1
    if source.at(after) != "(" or after not in source.partner:
        return
    parts = source.split(after + 1, source.partner[after])
    which = 1 if "Ex" in source.at(i) else 0
    if len(parts) <= which:
        raise CannotRead(i, f"the arguments of {source.at(i)}")
    begin, end = parts[which]
    kernel = _kernel_argument(one_line(source.slice(begin, end)))
    name = re.sub(r"<.*", "", kernel).split("::")[-1].strip("(& ")
    cooperative = "true" if "Cooperative" in source.at(i) else "false"
    cluster = kernels.cluster(name) or "1"
    call = f'::emu::api_call("{name}", __FILE__, __LINE__, {cooperative}, dim3({cluster})){_API[source.at(i)]}('
    start = i - 1 if source.at(i - 1) == "::" else i
    edits.replace_tokens(start, after + 1, call)
    edits.replace_tokens(begin, end, kernel)


def refuse(source: Source) -> None:
    """Raise NvccRefuses at the first launch of a text that nvcc does not compile."""
    for i, token in enumerate(source.tokens):
        if token.text == "<" and _is_launch(source, i):
            raise NvccRefuses(
                i,
                "a launch in cpp_sources, which nvcc does not compile: kernels and their launches go to cuda_sources.",
            )


def rewrite(source: Source, edits: Edits, kernels: Kernels) -> None:
    """Rewrite all launches of the source."""
    for i, token in enumerate(source.tokens):
        if token.text == "<" and _is_launch(source, i):
            _rewrite_launch(source, edits, kernels, i)
        elif token.text in _API:
            _rewrite_api(source, edits, kernels, i)
