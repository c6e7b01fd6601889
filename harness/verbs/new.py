"""`eval.py new`: a submission to begin with, which is accepted as it is unless the problem forbids what its reference
calls."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.errors import UsageError
from harness.exits import Exit
from harness.paths import SUBMISSIONS
from harness.plan import named_problem
from harness.report.files import require_writable, write
from harness.submission import read_submission, shipped_for
from harness.verbs.shared.completion import problems_like

if TYPE_CHECKING:
    from harness.problem import Problem

CALLS_THE_REFERENCE = (
    "It calls the reference and copies its result. Put your kernel in place of super().forward(*inputs): until then it "
    "is rejected where the problem forbids the reference's operators."
)
FORBIDS_NOTHING = (
    "{} names no FORBIDDEN_OPS, so what its reference calls may be called, unless it normalises, and the file may be "
    "accepted as it is (docs/problems.md)."
)

# For a problem without shipped submissions: the reference, behind a kernel that copies its result.
_BEHIND_THE_REFERENCE = '''
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAStream.h>

// Yours comes here.
__global__ void copy_kernel(const char* x, char* y, int64_t bytes) {
    const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < bytes) y[i] = x[i];
}

torch::Tensor copy(torch::Tensor x) {
    if (!x.is_non_overlapping_and_dense()) x = x.contiguous();
    auto y = torch::empty_like(x);  // with the same strides, so that bytes are copied one by one
    const int64_t bytes = x.numel() * x.element_size();
    if (bytes > 0)  // a launch of no blocks is an error
        copy_kernel<<<(bytes + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
            static_cast<const char*>(x.data_ptr()), static_cast<char*>(y.data_ptr()), bytes);
    return y;
}
"""
CPP = "torch::Tensor copy(torch::Tensor x);"
extension = load_inline(name="submission", cpp_sources=CPP, cuda_sources=CUDA, functions=["copy"])


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return extension.copy(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class ModelNew(Reference):
    def forward(self, *inputs):
        result = super().forward(*inputs)
        return Copy.apply(result) if isinstance(result, torch.Tensor) else result
'''


@click.command("new", help="Write a submission to begin with, for a problem (a file or a name).")
@click.argument("problem", shell_complete=problems_like)
@click.argument("file", type=click.Path(path_type=Path))
def command(problem: str, file: Path) -> Callable[[], Exit]:
    return partial(begin, problem, file)


def begin(problem: str, file: Path) -> Exit:
    """Write `file`, and its folder where there is none.

    Raises UsageError for a problem that cannot be loaded, and where there is something already.
    """
    path = named_problem(problem)
    if file.exists():
        raise UsageError(f"{file} exists; name a file that does not, or remove it.")
    loaded = _loaded(path)
    with contextlib.suppress(OSError):  # what is in the way is said next
        file.parent.mkdir(parents=True, exist_ok=True)
    require_writable(file, "FILE")
    text = _submission(path)
    try:
        write(file, text)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}.") from error
    print(f"{file} is written. Judge it: python eval.py {file} --problem {problem}")
    if text.endswith(_BEHIND_THE_REFERENCE):
        print(CALLS_THE_REFERENCE)
        if not loaded.forbidden_ops:
            print(FORBIDS_NOTHING.format(loaded.name))
    return Exit.ACCEPTED


def _loaded(problem: Path) -> Problem:
    from harness.problem import load_problem

    return load_problem(problem, random_seed=0)


def _submission(problem: Path) -> str:
    """The shortest kernel that is shipped for the problem, or one behind its reference."""
    kernels = [path for path in shipped_for(problem.stem) if _is_to_begin_with(path)]
    if not kernels:
        return _of_the_reference(problem)
    shortest = min(kernels, key=lambda path: path.stat().st_size)
    text = re.sub(r"^ALSO_FOR = .*\n+", "", shortest.read_text(), flags=re.MULTILINE)
    return f"# Begun from submissions/{shortest.relative_to(SUBMISSIONS).as_posix()}.\n{_shown(problem)}{text}"


def _is_to_begin_with(path: Path) -> bool:
    """Whether it is CUDA C++, which the emulator runs as well."""
    submission = read_submission(path)
    return submission.uses_cuda and not submission.gpu_language


def _shown(problem: Path) -> str:
    """The problem's reference as a comment."""
    lines = _source_of(problem, "Model").splitlines()
    return "# What it must compute:\n#\n" + "".join(f"#     {line}".rstrip() + "\n" for line in lines) + "\n"


def _of_the_reference(problem: Path) -> str:
    """The problem's file up to its Model, which is called Reference here, and a kernel behind it."""
    source = problem.read_text()
    model = _definition(source, "Model")
    before = "".join(source.splitlines(keepends=True)[: model.end_lineno])
    renamed = re.sub(r"\bModel\b", "Reference", before)
    return f"{renamed.rstrip()}\n{'' if 'import torch' in source else 'import torch'}\n{_BEHIND_THE_REFERENCE}"


def _source_of(problem: Path, name: str) -> str:
    source = problem.read_text()
    return ast.get_source_segment(source, _definition(source, name)) or ""


def _definition(source: str, name: str) -> ast.ClassDef:
    """Raises UsageError where no class of that name stands at the left margin."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    raise UsageError(f"The problem's {name} is no class that its file defines; write the submission by hand.")
