"""Which headers a source is compiled with: the lean ones where they do, and all of torch's where they do not."""

from pathlib import Path

import pytest

from harness.build.extension import Extension, SourceText
from harness.device.emulator import EmulatorToolchain, building, preludes
from harness.paths import SUBMISSIONS, emulator_cache

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
    cache = emulator_cache()
    toolchain = EmulatorToolchain(cache)
    toolchain.prepare(tried)
    names = dict(zip(toolchain.preludes(tried), tried, strict=True))
    seen = []

    def run(command, folder, run=building.run):
        if "-include" in command:
            seen.append(names[Path(command[command.index("-include") + 1]).parent])
        return run(command, folder)

    monkeypatch.setattr(building, "run", run)
    extension = Extension("e", (SourceText(DECLARED),), (SourceText(source),), functions=(("f", ""),))
    library, _ = toolchain.compile(extension, "e", tmp_path)
    assert library.exists()
    assert seen == tried


@pytest.mark.parametrize(
    "more",
    [
        "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}",
        "TORCH_LIBRARY(mine, m) {}",
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
