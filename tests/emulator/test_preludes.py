"""Which headers a source is compiled with: the lean ones where they do, and all of torch's where they do not."""

from pathlib import Path

import pytest

from harness.build.extension import BuildFailed
from harness.device.emulator import EmulatorToolchain, building, lean_errors, preludes
from harness.paths import SUBMISSIONS, emulator_cache
from harness.protocol.extension import Extension, SourceText

DECLARED = "torch::Tensor f(torch::Tensor x);"
SCALED = r"""
#include <torch/extension.h>
#include <ATen/Dispatch.h>
#include <c10/cuda/CUDAException.h>
template <typename T> __global__ void scale(const T* x, T* y, int n) {
    if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x] * T(2);
}
torch::Tensor f(torch::Tensor x) {
    TORCH_CHECK(x.dim() == 1, "f expects a row, but got ", x.sizes());
    auto y = torch::empty_like(x), z = torch::zeros({3}, x.options());
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "f", [&] {
        scale<scalar_t><<<1, 128>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), int(x.numel()));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
    return at::sqrt(y).index_select(0, torch::arange(3)) + torch::full({1}, 0.5, x.options()) * z.sum(-1);
}
"""
OF_ALL_TORCH = "torch::Tensor f(torch::Tensor x) { return at::globalContext().deterministicCuDNN() ? x : x.clone(); }"


@pytest.mark.parametrize(
    ("source", "tried"),
    [(SCALED, [preludes.LEAN]), (OF_ALL_TORCH, [preludes.LEAN, preludes.CUDA])],
    ids=["lean", "all of torch's"],
)
def test_a_source_gets_the_lean_header_and_silently_all_of_torch(source, tried, tmp_path, monkeypatch):
    toolchain, seen = watched(monkeypatch, tried)
    library, _ = toolchain.compile(of(source), "e", tmp_path)
    assert library.exists()
    assert seen == tried


def watched(monkeypatch, prepared):
    """A toolchain, and the preludes that it will have compiled with."""
    toolchain = EmulatorToolchain(emulator_cache())
    toolchain.prepare(prepared)
    names = {folder: name for name in preludes.TEXTS for folder in toolchain.preludes([name])}
    seen = []

    def run(command, folder, run=building.run):
        if "-include" in command:
            seen.append(names[Path(command[command.index("-include") + 1]).parent])
        return run(command, folder)

    monkeypatch.setattr(building, "run", run)
    return toolchain, seen


def of(source):
    return Extension("e", (SourceText(DECLARED),), (SourceText(source, "mine.py", 3),), functions=(("f", ""),))


WRONG = {
    "a semicolon": ("auto y = torch::empty_like(x), z", "auto y = torch::empty_like(x) z"),
    "a name": ("x[threadIdx.x] * T(2)", "x[i] * T(2)"),
    "a launch": (", int(x.numel()));", ");"),
    "a member": ("x.dim() ==", "x.dimm() =="),
}


OF_THE_DISPATCHER = (
    "#include <torch/library.h>\n"
    + SCALED
    + 'TORCH_LIBRARY(of_a_test_of_preludes, m) { m.def("f(Tensor x) -> Tensor", &f); }\n'
)


def test_a_source_that_includes_the_dispatcher_does_with_the_lean_header(tmp_path, monkeypatch):
    toolchain, seen = watched(monkeypatch, [preludes.LEAN])
    library, _ = toolchain.compile(of(OF_THE_DISPATCHER), "e", tmp_path)
    assert library.exists()
    assert seen == [preludes.LEAN]


@pytest.mark.parametrize(
    "wrong",
    [WRONG["a semicolon"], WRONG["a name"], ("m.def(", "m.deff(")],
    ids=["a semicolon", "a name", "one of the dispatcher's"],
)
def test_a_mistake_beside_the_dispatcher_is_not_compiled_again_either(wrong, tmp_path, monkeypatch):
    toolchain, seen = watched(monkeypatch, [preludes.LEAN])
    with pytest.raises(BuildFailed, match=r"^mine\.py:\d+: "):
        toolchain.compile(of(OF_THE_DISPATCHER.replace(*wrong)), "e", tmp_path)
    assert seen == [preludes.LEAN]


@pytest.mark.parametrize("wrong", WRONG)
def test_the_sources_own_mistake_is_not_compiled_again_with_all_of_torch(wrong, tmp_path, monkeypatch):
    toolchain, seen = watched(monkeypatch, [preludes.LEAN])
    with pytest.raises(BuildFailed, match=r"^mine\.py:\d+: "):
        toolchain.compile(of(SCALED.replace(*WRONG[wrong])), "e", tmp_path)
    assert seen == [preludes.LEAN]


def test_a_mistake_is_said_as_with_all_of_torchs_headers(tmp_path, monkeypatch):
    toolchain, seen = watched(monkeypatch, [preludes.LEAN, preludes.CUDA])
    said = []
    for number in range(2):
        with pytest.raises(BuildFailed) as raised:
            toolchain.compile(of(SCALED.replace(*WRONG["a semicolon"])), "e", tmp_path)
        said.append(str(raised.value))
        if not number:
            monkeypatch.setattr(lean_errors, "read", lambda _folder: None)
    assert seen == [preludes.LEAN, preludes.LEAN, preludes.CUDA]
    assert said[0] == said[1]


# Under the lean header its first error is in a header of torch's, which builds on what the lean one leaves out.
OF_A_HEADER = "#include <ATen/native/transformers/sdp_utils_cpp.h>\n" + SCALED


def test_a_right_source_whose_header_wants_all_of_torch_is_compiled_once_with_each(tmp_path, monkeypatch):
    toolchain, seen = watched(monkeypatch, [preludes.LEAN, preludes.CUDA])
    library, _ = toolchain.compile(of(OF_A_HEADER), "e", tmp_path)
    assert library.exists()
    assert seen == [preludes.LEAN, preludes.CUDA]


def without_lines(source):
    """As where the text was put together by the submission."""
    return Extension("e", (SourceText(DECLARED),), (SourceText(source),), functions=(("f", ""),))


def test_a_mistake_in_a_text_without_lines_is_compiled_once_with_each(tmp_path, monkeypatch):
    toolchain, seen = watched(monkeypatch, [preludes.LEAN, preludes.CUDA])
    with pytest.raises(BuildFailed, match="expected ',' or ';' before 'z'"):
        toolchain.compile(without_lines(SCALED.replace(*WRONG["a semicolon"])), "e", tmp_path)
    assert seen == [preludes.LEAN, preludes.CUDA]


@pytest.mark.parametrize(
    "declared",
    ["torch::Tensor f(torch::Tensor x, double y);", "double f(torch::Tensor x);"],
    ids=["a second of the name, of which the binding cannot choose", "another result, at the declaration's line"],
)
def test_what_cannot_be_bound_is_left_to_torchs_units_and_not_tried_with_all_of_torch(declared, tmp_path, monkeypatch):
    toolchain, seen = watched(monkeypatch, [preludes.LEAN, preludes.MAIN])
    extension = Extension(
        "e", (SourceText(declared, "mine.py", 1),), (SourceText(SCALED, "mine.py", 3),), functions=(("f", ""),)
    )
    toolchain.compile(extension, "e", tmp_path)
    assert seen == [preludes.LEAN, preludes.LEAN, preludes.MAIN]


# of what all of torch's headers declare, and the lean one
NAMES = lean_errors.Names(frozenset({"Tensor", "softmax", "Library", "LIBRARY"}), frozenset({"Library", "LIBRARY"}))


@pytest.mark.parametrize(
    ("error", "text", "own"),
    [
        ("'bia' was not declared in this scope", "x + bia; Library y;", True),
        ("'softmax' was not declared in this scope", "softmax(x)", False),  # at::softmax may be, by its argument
        ("'softmax' was not declared in this scope", "y = softmax;", True),
        ("'softmax' was not declared in this scope", "using namespace at; y = softmax;", False),
        ("'Library' was not declared in this scope", "Library y;", False),
        ("'Other' is not a member of 'at'", "at::Other x;", False),
        ("'class at::Tensor' has no member named 'dimm'", "x.dimm()", True),
        ("'class at::Tensor' has no member named 'Library'", "x.Library()", False),
        ("expected ';' before 'for'", "int y for", True),
        ("expected ';' before '{' token", "LIBRARY(x) { }", False),  # a macro that is not there
        ("expected ';' before '{' token", "// LIBRARY\nmine(x) { }", True),
        ("expected ';' before '{' token", "#include <ATen/Library.h>\n{ }", True),
        ("expected ';' before '{' token", "#define A(x) x ## ARY\nA(LIBR) { }", False),
        ("expected ';' before '{' token", '#include "mine.h"\n{ }', False),
        ("cannot convert 'double*' to 'float*'", "f(x)", True),
        ("cannot convert 'c10::Half*' to 'float*'", "f(x)", True),
        ("cannot convert 'at::Tensor' to 'c10::Scalar'", "f(x)", False),  # by a constructor that is not there
        ("no matching function for call to 'reduce(float)'", "reduce(x)", True),
        ("no matching function for call to 'softmax(float)'", "softmax(x)", False),
    ],
)
def test_an_error_that_the_lean_header_may_have_made_is_not_the_sources(error, text, own):
    assert lean_errors.are_of_the_source(f"mine.py:3:7: error: {error}", [text], NAMES) == own


@pytest.mark.parametrize(
    "more",
    [
        "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}",
        "TORCH_LIBRARY(mine, m) {}",
        "#include <torch/library.h>\nTORCH_LIBRARY(mine, m) {}",
        "#include <torch/csrc/autograd/custom_function.h>",
        "torch::Tensor f(torch::Tensor x) { return x; }",
    ],
)
def test_other_headers_are_compiled_ahead_for_submissions_that_show_they_want_them(more, tmp_path):
    file = tmp_path / "submission.py"
    file.write_text(f"CPP = {DECLARED!r}\nCUDA = {SCALED!r}\n")
    assert preludes.wanted(file) == {preludes.LEAN}
    file.write_text(f"CPP = {more!r}\nCUDA = {SCALED!r}\n")
    assert preludes.wanted(file) == {preludes.LEAN, preludes.MAIN}
    file.write_text(f"CPP = {DECLARED!r}\nCUDA = {SCALED + more!r}\n")
    assert preludes.wanted(file) == {preludes.LEAN} | ({preludes.CUDA} if not preludes.is_lean(more) else set())


def test_a_docstring_wants_no_header(tmp_path):
    file = tmp_path / "submission.py"
    file.write_text('"""Rounds {as PyTorch does}, and is bound without pybind11."""\n' + f"CUDA = {SCALED!r}\n")
    assert preludes.wanted(file) == {preludes.LEAN}


def test_kernels_beside_bindings_of_their_own_do_with_the_lean_header(tmp_path, monkeypatch):
    toolchain = EmulatorToolchain(emulator_cache())
    toolchain.prepare([preludes.LEAN, preludes.MAIN])
    names = {str(folder): name for name in preludes.TEXTS for folder in toolchain.preludes([name])}
    seen = {}

    def run(command, folder, run=building.run):
        if "-include" in command:
            seen[command[-1]] = names[str(Path(command[command.index("-include") + 1]).parent)]
        return run(command, folder)

    monkeypatch.setattr(building, "run", run)
    bound = f'{DECLARED}\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("f", &f); }}'
    toolchain.compile(Extension("e", (SourceText(bound),), (SourceText(SCALED),)), "e", tmp_path)
    assert seen == {"main.o": preludes.MAIN, "cuda.o": preludes.LEAN}


def test_shipped_layer_norms_want_the_lean_header_only():
    for file in (SUBMISSIONS / "layernorm").glob("rung*.py"):
        assert preludes.wanted(file) == {preludes.LEAN}, file.name


def test_a_compiler_that_was_killed_is_not_taken_for_a_torch_without_the_lean_header(tmp_path, monkeypatch):
    """Whoever needs it next makes it: kept, the answer would have cost each build all of torch's headers."""

    def killed(command, _folder):
        raise building.CompilerError(command, "g++: fatal error: Killed signal terminated program cc1plus\n")

    monkeypatch.setattr(building, "run", killed)
    with pytest.raises(building.CompilerError):
        preludes.compiled(tmp_path, preludes.LEAN, [])
    assert not preludes.place(tmp_path, preludes.LEAN, []).exists()


def test_a_torch_that_the_lean_header_does_not_fit_has_its_whole_ones(tmp_path, monkeypatch):
    def wrong(command, _folder):
        raise building.CompilerError(command, "prelude.h:3:1: error: 'Tensor' does not name a type\n")

    monkeypatch.setattr(building, "run", wrong)
    assert "#error" in preludes.compiled(tmp_path, preludes.LEAN, []).read_text()
