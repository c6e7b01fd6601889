"""Python, C++ and CUDA in colours: expressions that know what a page colours and nothing else.

Pygments' own lexers take some 1.5 µs a character, most of it for names and punctuation that no colour shows: half a
minute for a site of 1,000 sources. These take a tenth of that. CUDA's words are those of Pygments.
"""

from __future__ import annotations

import builtins
import keyword
import re
from html import escape

from pygments.lexers import CudaLexer
from pygments.regexopt import regex_opt

from harness.report.site.elements import element

_KEYWORDS = """
alignas alignof asm auto bool break case catch char class concept const const_cast consteval constexpr constinit
continue co_await co_return co_yield decltype default delete do double dynamic_cast else enum explicit export extern
false float for friend goto if inline int long mutable namespace new noexcept nullptr operator private protected public
register reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch
template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile while
"""
_QUALIFIERS = CudaLexer.function_qualifiers | CudaLexer.variable_qualifiers | {"__restrict__"}
_TYPES = CudaLexer.vector_types | CudaLexer.stdlib_types | CudaLexer.c99_types | {"half", "__half", "__nv_bfloat16"}
_BUILTINS = CudaLexer.variables | CudaLexer.functions


def _words(*sets: set[str]) -> str:
    return regex_opt(sorted(set[str]().union(*sets))).replace("(", "(?:").replace("(?:?:", "(?:")


# In text of which <, > and & are escaped; what is no letter stays none.
_SIGNIFICANT = re.compile(
    r"(?P<comment>//[^\n]*|/\*[\s\S]*?(?:\*/|\Z))"
    r"|(?P<preproc>^[ \t]*\#(?:[^\n/\\]|\\\n|\\|/(?![/*]))*)"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*')"
    rf"|\b(?:(?P<type>{_words(_TYPES, _BUILTINS)})|(?P<keyword>{_words(set(_KEYWORDS.split()), _QUALIFIERS)}))\b"
    r"|(?<![\w.])(?P<number>0[xX][0-9a-fA-F']+[uUlL]*|\d[\d']*\.?\d*(?:[eE][+-]?\d+)?[fFuUlL]*)",
    re.MULTILINE,
)


def coloured_cuda(text: str) -> str:
    """HTML of C++ and CUDA: comments, directives, strings, numbers, keywords and CUDA's own names are elements. No
    character is lost."""
    return _SIGNIFICANT.sub(lambda found: element(str(found.lastgroup), found[0]), escape(text, quote=False))


_BUILT_IN = set(filter(str.isalpha, dir(builtins)))
_IN_PYTHON = re.compile(
    r"(?P<comment>\#[^\n]*)"
    r"|(?P<string>(?:\b[rRbBuUfF]{1,2})?(?:\"(?:[^\"\\\n]|\\[\s\S])*\"?|'(?:[^'\\\n]|\\[\s\S])*'?))"
    rf"|(?<!\.)\b(?:(?P<keyword>{_words(set(keyword.kwlist))})|(?P<type>{_words(_BUILT_IN)}))\b"
    r"|(?<![\w.])(?P<number>0[xXoObB][\da-fA-F_]+|\d[\d_]*\.?\d*(?:[eE][+-]?\d+)?j?)"
)


def coloured_python(text: str) -> str:
    """HTML of Python without strings of several lines: comments, strings, numbers, keywords and built-in names are
    elements. No character is lost."""
    return _IN_PYTHON.sub(lambda found: element(str(found.lastgroup), found[0]), escape(text, quote=False))


def looks_like_code(literal: str) -> bool:
    """Whether a Python string of several lines holds C++."""
    return literal.count("\n") >= 3 and bool(re.search(r"[;{]\s*$|^\s*#\s*include", literal, re.MULTILINE))
