"""Stand-ins for torch's own CUDA libraries, for a CUDA build of torch on a machine without a GPU.

`libtorch_python.so` of such a build needs `libtorch_cuda.so` and `libc10_cuda.so`, and these register a device,
an allocator and kernels of their own. Libraries of the same names that are loaded before take their place: they
define the few symbols that torch's Python side asks for, and each of these raises once torch is imported. What
is left is a torch without CUDA, to which the emulator adds its device as it does for a CPU build.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

from harness.device.emulator import building, paths

NAMES = ("libc10_cuda.so", "libtorch_cuda.so")
_BROUGHT_ALONG = {"libtorch_cuda.so": ("libtorch_nvshmem.so",)}  # libraries that are loaded for this one
_USERS = ("libtorch_python.so", "libtorch.so")

_HEAD = """
#include <cxxabi.h>
#include <stdexcept>
#include <string>
[[noreturn]] static void missing(const char* symbol) {
    int status;
    char* name = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
    throw std::runtime_error(std::string("CUDA emulator: not emulated: torch's own CUDA libraries are not loaded, and "
                                         "nothing stands in for ") + (status ? symbol : name) + ".");
}
// While torch is imported, it hands a few addresses over; where they end up does not matter.
static bool imported = false;
static char nowhere[4096];
extern "C" void emu_torch_is_imported() { imported = true; }
static void* called(const char* symbol) { return imported ? (missing(symbol), nullptr) : nowhere; }
static void nothing() {}   // destructors, which must not raise, are the first methods
static void missing_method() { missing("method of an object of torch's CUDA libraries"); }
typedef void (*Method)();
#define METHODS8 missing_method, missing_method, missing_method, missing_method, missing_method, missing_method, \\
                 missing_method, missing_method
#define METHODS nothing, nothing, METHODS8, METHODS8, METHODS8, METHODS8, METHODS8, METHODS8, METHODS8, METHODS8
struct Vtable { long offset; const void* type; Method methods[66]; };
struct TypeInfo { const void* vtable; const char* name; };
extern "C" const void* const class_type_info[] __asm__("_ZTVN10__cxxabiv117__class_type_infoE");
static TypeInfo object_type = {class_type_info + 2, "3emu"};
static Vtable object_methods = {0, &object_type, {METHODS}};
static const Method* object = object_methods.methods;
"""


def _symbols(library: Path, which: str) -> dict[str, str]:
    """Dynamic symbols and the letter by which nm names their kind."""
    command = ["nm", "-D", f"--{which}-only", str(library)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        text = "The emulator reads the symbols of torch's libraries with nm, which is not installed: install binutils."
        raise paths.Missing(text) from None
    return {name.split("@")[0]: kind for kind, name in re.findall(r"^\S* +([A-Za-z]) (\S+)$", answer, re.MULTILINE)}


def _definition(number: int, symbol: str, kind: str) -> str:
    """C++ for one symbol: a function that raises, or an object whose methods do (Itanium C++ ABI, 2.9 and 5.1)."""
    label = f'__asm__("{symbol}")'
    if symbol.startswith("_ZTI"):
        value = f'{{class_type_info + 2, "{symbol.removeprefix("_ZTI")}"}}'
        return f'extern "C" {{ extern TypeInfo t{number} {label}; TypeInfo t{number} = {value}; }}'
    if symbol.startswith("_ZTV"):
        return f'extern "C" {{ extern Vtable v{number} {label}; Vtable v{number} = {{0, &object_type, {{METHODS}}}}; }}'
    if re.search(r"C[12]E", symbol):
        return (
            f'extern "C" void f{number}(const Method**) {label};\n'
            f'void f{number}(const Method** self) {{ called("{symbol}"); *self = object; }}'
        )
    if kind in "TWt":
        return f'extern "C" void* f{number}() {label};\nvoid* f{number}() {{ return called("{symbol}"); }}'
    # A pointer to an object, or zeros.
    value = "{&object}"
    return f'extern "C" {{ extern const void* d{number}[8] {label}; const void* d{number}[8] = {value}; }}'


def make(folder: Path, flags: list[str]) -> None:
    """Write the stand-ins into `folder`, one for each of `NAMES`."""
    libraries = paths.torch_folder() / "lib"
    wanted = {name for user in _USERS for name in _symbols(libraries / user, "undefined")}
    for name in NAMES:
        origins = [f for f in (name, *_BROUGHT_ALONG.get(name, ())) if (libraries / f).exists()]
        offered = {symbol: kind for f in origins for symbol, kind in _symbols(libraries / f, "defined").items()}
        needed = sorted(wanted & offered.keys())
        source = folder / f"{name}.cpp"
        source.write_text(_HEAD + "\n".join(_definition(i, s, offered[s]) for i, s in enumerate(needed)) + "\n")
        building.run(
            [paths.compiler(), *flags, f"-Wl,-soname,{name}", source.name, "-o", name],
            folder,
        )


def load(folder: Path) -> list[ctypes.CDLL]:
    """Put the stand-ins, if there are any in `folder`, before the libraries they stand for."""
    made = [folder / name for name in NAMES if (folder / name).exists()]
    return [ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL) for library in made]


def torch_is_imported(libraries: list[ctypes.CDLL]) -> None:
    """From now on, a call of a stand-in is a mistake and raises."""
    for library in libraries:
        library.emu_torch_is_imported()
