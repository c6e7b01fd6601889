"""`__shared__` variables: one per block, hence found through the running thread."""

from __future__ import annotations

from harness.device.emulator.translate.launches import CannotRead
from harness.device.emulator.translate.lexer import Edits, Source, one_line

_STORAGE = ("extern", "static", "__shared__")
_BEFORE_A_USE = {"return", "else", "do", "case", "throw", "sizeof", "decltype"}


def at_namespace_scope(source: Source) -> list[bool]:
    """For each token, whether it stands at namespace scope."""
    at_namespace: list[bool] = []
    stack: list[bool] = []
    for i, token in enumerate(source.tokens):
        at_namespace.append(all(stack))
        if token.text == "{":
            stack.append(_opens_namespace(source, i))
        elif token.text == "}" and stack:
            stack.pop()
    return at_namespace


def _opens_namespace(source: Source, brace: int) -> bool:
    i = brace - 1
    if source.at(i).startswith('"'):
        return source.at(i - 1) == "extern"
    while source.at(i) == "::" or (i >= 0 and source.tokens[i].kind == "name" and source.at(i) != "namespace"):
        i -= 1
    return source.at(i) == "namespace"


def _type_of(source: Source, first: int, last: int) -> tuple[str, str]:
    """Alignment and type of the declaration in these tokens, without storage words."""
    kept, alignment, i = [], "", first
    while i < last:
        if source.at(i) in ("__align__", "alignas") and source.at(i + 1) == "(":
            close = source.partner[i + 1]
            alignment += f"alignas({one_line(source.slice(i + 2, close))}) "
            i = close
        elif source.at(i) not in _STORAGE:
            kept.append(source.at(i))
        i += 1
    return alignment, " ".join(kept)


def _declarator(source: Source, first: int, last: int) -> tuple[int, int]:
    """Token indices of a declarator's name and of the end of its array bounds."""
    i = last - 1
    while i > first and source.at(i) == "]":
        i = source.partner[i] - 1
    return i, last


def _macro(name: str, value: str) -> str:
    return f"#define {name} ({value})"


def _dynamic(source: Source, first: int, last: int) -> tuple[str, str]:
    """Rewrite `extern __shared__`; name and value of what stands for it."""
    name, _ = _declarator(source, first, last)
    if source.at(name + 1) != "[":
        raise CannotRead(first, "this extern __shared__ declaration")
    _, type_text = _type_of(source, first, name)
    return source.at(name), f"reinterpret_cast<{type_text}*>(::emu::dynamic_shared())"


def _static(source: Source, first: int, last: int) -> tuple[str, list[tuple[str, str]]]:
    """The structs of the variables in this declaration, and for each its name and where it is."""
    parts = source.split(first, last)
    name, _ = _declarator(source, *parts[0])
    if source.tokens[name].kind != "name" or name <= first:
        raise CannotRead(first, "this __shared__ declaration")
    alignment, type_text = _type_of(source, first, name)
    declared = [(name, parts[0][1])] + [(_declarator(source, *part)[0], part[1]) for part in parts[1:]]
    structs, variables = "", []
    for at, end in declared:
        variable = source.at(at)
        tag = f"emu_shared_{source.tokens[at].start}_{variable}"
        bounds = one_line(source.slice(at + 1, end))
        structs += f"struct {tag} {{ {alignment}{type_text} {variable}{bounds}; }}; "
        variables.append((variable, f"::emu::shared<{tag}>().{variable}"))
    return structs, variables


def _declares(source: Source, first: int, last: int, name: str) -> bool:
    """Whether a parameter or a variable of this name is declared in these tokens of a function."""
    for i in range(first, last):
        if source.at(i) != name:
            continue
        before, after = source.tokens[i - 1], source.at(i + 1)
        typed = before.kind == "name" and before.text not in _BEFORE_A_USE
        if (typed and after in ("=", ";", "[", "(", "{", ",", ")")) or (
            before.text in ("*", "&", ">") and after == "="
        ):
            return True
        if before.text in ("*", "&", ">") and after in (",", ")") and _in_parameters(source, first, i):
            return True
    return False


def _in_parameters(source: Source, first: int, i: int) -> bool:
    """Whether the token stands in the parentheses that stand before the first brace behind `first`."""
    body = next(k for k in range(first, len(source.tokens)) if source.at(k) == "{")
    return i < body


def _functions(source: Source, scopes: list[bool], after: int) -> list[tuple[int, int]]:
    """First and last token of each function with a body, at namespace scope behind the token `after`."""
    bodies = [i for i in range(after, len(source.tokens)) if source.at(i) == "{" and scopes[i] and i in source.partner]
    return [
        (source.statement_start(i), source.partner[i])
        for i in bodies
        if ")" in source.slice(source.statement_start(i), i)
    ]


def _at_namespace(
    source: Source, edits: Edits, scopes: list[bool], place: tuple[int, int], structs: str,
    variables: list[tuple[str, str]], first_line: int,
) -> None:  # fmt: skip
    """No thread runs yet where the declaration stands, so that each use must look the memory up: macros, which are not
    there in functions with a variable of their own of such a name."""

    def directives(lines: list[str], line: int) -> str:
        return "\n" + "\n".join(lines) + f"\n#line {line}\n"

    first, last = place
    macros = [_macro(name, value) for name, value in variables]
    line = source.line(last) + first_line - 1
    edits.replace(source.tokens[first].start, source.tokens[last].end, structs + directives(macros, line))
    for begin, end in _functions(source, scopes, last + 1):
        hidden = [(name, value) for name, value in variables if _declares(source, begin, end, name)]
        if not hidden:
            continue
        gone = directives([f"#undef {name}" for name, _ in hidden], source.line(begin) + first_line - 1)
        edits.insert_before(begin, gone)
        again = directives([_macro(*one) for one in hidden], source.line(end) + first_line - 1)
        edits.insert_behind(end, again)


def rewrite(source: Source, edits: Edits, first_line: int) -> None:
    """Rewrite all declarations of shared variables; the source begins at line `first_line` of its file."""
    scopes = at_namespace_scope(source)
    for i, token in enumerate(source.tokens):
        if token.text != "__shared__":
            continue
        first, last = source.statement_start(i), i
        while last < len(source.tokens) and source.at(last) != ";":
            last = source.partner.get(last, last) + 1 if source.at(last) in ("(", "[", "{") else last + 1
        if last == len(source.tokens):
            raise CannotRead(i, "this __shared__ declaration")
        dynamic = any(source.at(k) == "extern" for k in range(first, last))
        structs, variables = ("", [_dynamic(source, first, last)]) if dynamic else _static(source, first, last)
        if scopes[i]:
            _at_namespace(source, edits, scopes, (first, last), structs, variables, first_line)
            continue
        declared = [f"auto{'' if dynamic else '&'} {name} = {value}" for name, value in variables]
        edits.replace_tokens(first, last, structs + "; ".join(declared))
