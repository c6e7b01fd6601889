"""Stand-ins for the CUDA libraries of a CUDA build of torch, with small libraries in the place of torch's."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.build.extension import NOT_EMULATED
from harness.device.emulator import paths, standins
from tests.helpers import ROOT

OFFERED = {
    "libc10_cuda.so": "namespace c10 { int device_count() { return 3; } }",
    "libtorch_cuda.so": "struct Options { Options(); virtual ~Options(); virtual int size(); };\n"
    "Options::Options() {}\nOptions::~Options() {}\nint Options::size() { return 5; }\n"
    "int never_asked_for() { return 1; }",
    "libtorch.so": "",
}
USER = r"""
#include <cstring>
#include <exception>
#include <typeinfo>
namespace c10 { int device_count(); }
struct Options { Options(); virtual ~Options(); virtual int size(); };
static char said[500];
static int at_load = (c10::device_count(), 1);
template <class F> static const char* attempt(F f) {
    try { f(); } catch (const std::exception& error) { strncpy(said, error.what(), 499); return said; }
    return "nothing was raised";
}
extern "C" const char* count() { return attempt([] { c10::device_count(); }); }
extern "C" const char* make() { return attempt([] { Options* o = new Options; typeid(*o).name(); o->size(); }); }
extern "C" const char* end() { return attempt([] { Options* o = new Options; delete o; }); }
"""
PROGRAM = """
import ctypes, sys
from pathlib import Path
from harness.device.emulator import standins
libraries = standins.load(Path(sys.argv[1]))
user = ctypes.CDLL(sys.argv[2])
for name in ("count", "make", "end"):
    getattr(user, name).restype = ctypes.c_char_p
print(user.count().decode())
print(user.end().decode())
print(user.make().decode())
standins.torch_is_imported(libraries)
print(user.count().decode())
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What the user of the libraries hears from their stand-ins."""
    torch, made = tmp_path_factory.mktemp("torch"), tmp_path_factory.mktemp("made")
    (torch / "lib").mkdir()
    sources = {**OFFERED, "libtorch_python.so": USER}
    for name, text in sources.items():
        (torch / f"{name}.cpp").write_text(text)
        needed = [f"-l:{other}" for other in standins.NAMES] if name == "libtorch_python.so" else []
        subprocess.run(
            [paths.compiler(), "-shared", "-fPIC", f"-Wl,-soname,{name}", str(torch / f"{name}.cpp"), "-o", name,
             "-L.", *needed],
            cwd=torch / "lib", check=True,
        )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "torch_folder", lambda: torch)
        standins.make(made, ["-shared", "-fPIC"])
    symbols = standins._symbols(made / "libtorch_cuda.so", "defined")
    program = [sys.executable, "-c", PROGRAM, str(made), str(torch / "lib" / "libtorch_python.so")]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), symbols


def test_calls_while_torch_is_imported_do_nothing(said):
    assert said[0][0] == "nothing was raised"


def test_an_object_of_theirs_can_be_made_and_ended_and_its_methods_raise(said):
    assert said[0][1] == "nothing was raised"
    assert "method of an object of torch's CUDA libraries" in said[0][2]


def test_calls_after_that_raise_with_the_function_s_name(said):
    assert said[0][3].startswith(f"{NOT_EMULATED}torch's own CUDA libraries are not loaded")
    assert "c10::device_count()" in said[0][3]


def test_only_what_is_asked_for_is_defined(said):
    assert not any("never_asked_for" in name for name in said[1])
