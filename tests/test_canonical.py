"""Sources as they are built: comments and blanks are gone where it is sure what they are, and lines stay."""

import subprocess

import pytest

from harness.build.canonical import canonical


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int a;  // one", "int a; // two"),
        ("int a; // one", "int a;"),
        ("\tint  a = f( 1 );", "    int a = f( 1 );   "),
        ("/* one\n two */ int a;", "/* three\n*/ int a;"),
        ("#pragma unroll 4  // one", "  #pragma unroll 4"),
        ("#include <a//b.h>  // one", "#include <a//b.h>"),
        ("int a = 1'000;  // it's", "int a = 1'000;"),
        ("#define A(x) \\\n  f(x)\nint a; // one", "#define A(x) \\\n  f(x)\nint a;"),
    ],
)
def test_comments_and_blanks_change_nothing(one, other):
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('f("a  b")', 'f("a b")'),
        ('f("// one")', 'f("// two")'),
        ('f(R"x(// one)")x")', 'f(R"x(// two)")x")'),
        ("f(' ')", "f('  ')"),
        ("int a;", "\nint a;"),
        ("#define A /*\n*/ 1", "#define A \n 1"),
        ("#include <a//b.h>", "#include <a//c.h>"),
        ("#include <a/*b.h>\nint a;\n/**/", "#include <a/*b.h>\nint b;\n/**/"),
        ("// one \\\nint a;", "// one\nint a;"),
        ("// one \\ \nint a;", "// two\nint a;"),
        ("// one ??/\nint a;", "// two ??/\nint b;"),
        ("int a = 1'0//'\n0;", "int a = 1'0//'\n1;"),
        ("a b", "ab"),
        ('f(u8R"(\n// one)")', 'f(u8R"(\n// two)")'),
    ],
)
def test_what_is_no_comment_changes_the_source(one, other):
    assert canonical(one) != canonical(other)


SOURCE = r"""
#include <cstdio>  // printf
#define TWICE(x) \
    ((x) + (x))  // of x
#define WORDS(x) #x /* as text */
/* three
   lines */ static const char* raw = R"(// no comment /* nor this)";  /* but this */
int main() { // it's "quoted"
    const int thousand = 1'000; char quote = '"'; // '
    printf("%d %c %s %s // %d\n", TWICE(thousand), quote, raw, WORDS(a  /**/  +b),   __LINE__);
}
"""


def test_a_program_without_its_comments_prints_the_same_and_has_the_same_lines(tmp_path):
    assert "quoted" not in canonical(SOURCE)
    printed = []
    for text in (SOURCE, canonical(SOURCE)):
        (tmp_path / "program.cpp").write_text(text)
        subprocess.run(["g++", "-std=c++20", "program.cpp", "-o", "program"], cwd=tmp_path, check=True)
        printed.append(subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True).stdout)
    assert printed[0] == printed[1]
    assert printed[0].endswith("// 10\n")


def test_it_is_canonical_once_for_all():
    assert canonical(canonical(SOURCE)) == canonical(SOURCE)
    assert canonical(SOURCE).count("\n") == SOURCE.count("\n")
