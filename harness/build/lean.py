"""Less of torch's headers for one extension: of what they declare that which its sources name.

torch/types.h declares all of torch's operators, some 2,500, and each method of a tensor calls one. nvcc parses them
three times for a source of kernels and g++ once for its bindings, or for C++ without kernels, and before the latter
torch's whole C++ frontend: that is most of a build. What is written here is torch's own text with declarations left
out. Compilers look in the folder before torch's.

What a source uses and these headers leave out is an error of the compiler; the extension is then built with torch's,
unless the error is one that torch's headers cannot mend.
"""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from collections.abc import Collection, Iterable
from pathlib import Path

from harness.protocol.extension import Extension

# What is for nvcc alone, where g++ needs all that torch has: bindings written by hand call what they like.
_FOR_NVCC = "#ifdef __CUDACC__\n{lean}#else\n#include_next <{name}>\n#endif\n"
_INNER = re.compile(r"#\s*include\s*[<\"]torch/csrc/")

# Sources that use parts of torch that stand on more than tensors, or kernels that speak to Python.
_MORE = re.compile(r"\bTORCH_LIBRARY|\bIValue\b|#\s*include\s*[<\"]torch/(?!extension\.h|types\.h|csrc/)")
PYTHON = re.compile(r"\b(?:py::|pybind11|PYBIND11_|Py(?!Torch\b)[A-Z_]|THP[A-Z])")

# What a source calls: functions of torch's, and methods of anything.
_FUNCTION = re.compile(r"\b(?:at|torch)::(\w+)\s*\(")
_METHOD = re.compile(r"(?:\.|->)\s*(\w+)\s*\(")
_CALL = re.compile(r"\b(\w+)\(")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)

# Of ATen/core/TensorBody.h a method's definition, its declaration in the class, and the operator that it calls.
_DEFINITION = re.compile(
    r"^inline [^\n]* Tensor::(\w+)\([^\n]*\{\n    return at::_ops::\w+::call\([^\n]*\n\}\n", re.MULTILINE
)
_DECLARATION = re.compile(r"^  [\w:&<>,* ]*?[ &](\w+)\([^\n]*\) const(?: &)?;\n", re.MULTILINE)
_OPERATOR = re.compile(r"at::_ops::(\w+)::call")

# Of torch/csrc/autograd/generated/variable_factories.h a factory, the header of its operator, and that of what
# torch::tensor takes.
_FACTORY = re.compile(r"^inline at::Tensor (\w+)\([^\n]*\{\n(?:  [^\n]*\n)*\}\n", re.MULTILINE)
_OPERATOR_INCLUDE = re.compile(r"^#include <ATen/ops/(\w+)\.h>\n", re.MULTILINE)
_CONTAINER_INCLUDE = re.compile(r"^#include [^\n]*TensorDataContainer\.h>\n", re.MULTILINE)
# Its definitions go over many lines and stay.
_LONG_FACTORY = "from_blob"

# nvcc's and g++'s word for a name that nothing declares, behind the place.
_UNKNOWN = re.compile(r"^\S+:\d+: (?:identifier \"(\w+)\" is undefined$|['‘](\w+)['’] was not declared in this scope)")
_CONDITION = re.compile(r"^\s*#\s*if", re.MULTILINE)
PREPROCESSING_S = 60

_EXTENSION = "torch/extension.h"
_TENSORS = "#include <ATen/core/Tensor.h>\n"
_FIXED = {
    "ATen/ATen.h": f"""{_TENSORS}#include <ATen/DimVector.h>
#include <ATen/Dispatch.h>
#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Logging.h>
""",
    # Operators' headers include these and use nothing of them.
    "ATen/Context.h": "",
    "ATen/DeviceGuard.h": "",
    # torch/types.h includes it and uses nothing of it.
    "torch/library.h": "",
    # Without the C++ frontend; bindings, and loops on processors, are compiled by g++ alone.
    _EXTENSION: """#include <torch/types.h>
#ifndef __CUDACC__
#include <ATen/Parallel.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#endif
""",
    # For tensors that factories have just made. Of others torch's own would give a copy without history.
    "torch/csrc/autograd/variable.h": f"""{_TENSORS}namespace torch::autograd {{
using Variable = at::Tensor;
inline Variable make_variable(at::Tensor data, bool requires_grad = false, bool allow_tensor_metadata_change = true) {{
  if (data.defined()) {{
    data.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(allow_tensor_metadata_change);
    if (requires_grad) data.set_requires_grad(true);
  }}
  return data;
}}
}}  // namespace torch::autograd
""",
}


def may_do(extension: Extension) -> bool:
    """Whether less may be enough for its sources. The compilers have the last word."""
    kernels = [piece.text for piece in extension.cuda_sources]
    others = [piece.text for piece in extension.cpp_sources]
    if any(map(_MORE.search, (*kernels, *others))):
        return False
    return not any(map(PYTHON.search, kernels)) if kernels else not any(map(_INNER.search, others))


def write(folder: Path, include: Path, extension: Extension) -> None:
    """Write the headers for an extension into `folder`; `include` is where torch's are. Raises OSError where one of
    torch's that these are made of is not there."""
    source = _COMMENT.sub("", "\n".join(piece.text for piece in (*extension.cuda_sources, *extension.cpp_sources)))
    functions = {*_FUNCTION.findall(source), _LONG_FACTORY}
    body, called = _tensor_body((include / "ATen/core/TensorBody.h").read_text(), set(_METHOD.findall(source)))
    factories = (include / "torch/csrc/autograd/generated/variable_factories.h").read_text()
    operators = include / "ATen/ops"
    known = (name for name in functions if (operators / f"{name}.h").exists())
    headers = {
        **_FIXED,
        "ATen/core/TensorBody.h": body,
        "ATen/MethodOperators.h": _including(f"{_header(operators, name)}_ops" for name in called),
        "ATen/Functions.h": f"{_TENSORS}#include <c10/core/TensorOptions.h>\n{_including(known)}",
        "torch/csrc/autograd/generated/variable_factories.h": _factories(factories, functions),
    }
    by_hand = any(_INNER.search(piece.text) for piece in extension.cpp_sources)
    for name, text in headers.items():
        if by_hand and name != _EXTENSION:
            text = _FOR_NVCC.format(lean=text, name=name)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#pragma once\n{text}")


def are_of_the_source(errors: str, include: Path, extension: Extension) -> bool:
    """Whether all of torch's headers would leave these errors, a line each, as they are: each is about a name that is
    nowhere in them, nor in what they include. In doubt they would not."""
    found = [_UNKNOWN.match(line) for line in errors.splitlines()]
    chosen = any(_CONDITION.search(piece.text) for piece in (*extension.cuda_sources, *extension.cpp_sources))
    if chosen or not found or not all(found):  # a condition may be one that only they fulfil
        return False
    text = _preprocessed(include)
    names = {match[1] or match[2] for match in found if match}
    return bool(text) and not any(re.search(rf"\b{name}\b".encode(), text) for name in names)


def _preprocessed(include: Path) -> bytes:
    """All of torch's headers with their macros; empty where they cannot be had."""
    folders = (include, include / "torch/csrc/api/include", sysconfig.get_paths()["include"])
    command = [os.environ.get("CXX", "c++"), "-E", "-dD", "-std=c++20", *(f"-I{folder}" for folder in folders)]
    try:
        done = subprocess.run(
            [*command, "-x", "c++", "-"], input=f"#include <{_EXTENSION}>\n".encode(), capture_output=True,
            timeout=PREPROCESSING_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return b"" if done.returncode else done.stdout


def _including(operators: Iterable[str]) -> str:
    return "".join(f"#include <ATen/ops/{name}.h>\n" for name in sorted(set(operators)))


def _header(operators: Path, name: str) -> str:
    """Whose header declares an operator: `add_Tensor` and `add__Scalar` stand in that of `add`."""
    while name and not (operators / f"{name.rstrip('_')}_ops.h").exists():
        name = name.rpartition("_")[0]
    return name.rstrip("_")


def _tensor_body(text: str, methods: Collection[str]) -> tuple[str, set[str]]:
    """ATen/core/TensorBody.h with those of its methods alone that `methods` names or the rest of it calls; and the
    operators that these call."""
    others = set(_DEFINITION.findall(text)).difference(methods)
    rest = _COMMENT.sub("", _without(others, text))
    text = _without(others.difference(_CALL.findall(rest)), text)
    return text, set(_OPERATOR.findall(text))


def _without(methods: Collection[str], text: str) -> str:
    for pattern in (_DEFINITION, _DECLARATION):
        text = pattern.sub(lambda found: "" if found[1] in methods else found[0], text)
    return text


def _factories(text: str, functions: Collection[str]) -> str:
    """torch's factories, such as torch::empty, of `functions` alone."""
    for pattern in (_FACTORY, _OPERATOR_INCLUDE):
        text = pattern.sub(lambda found: found[0] if found[1] in functions else "", text)
    return text if "tensor" in functions else _CONTAINER_INCLUDE.sub("", text)
