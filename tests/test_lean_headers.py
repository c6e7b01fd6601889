"""Extensions are compiled with less of torch's headers first: the same functions come out, and what needs more gets
all."""

import importlib.util
from pathlib import Path

import pytest
import torch

from harness.build import lean
from harness.build.extension import BuildFailed
from harness.build.torch_toolchain import TorchToolchain
from harness.protocol.extension import Extension, SourceText

INCLUDE = Path(torch.__file__).parent / "include"

# What sources of kernels use of torch, without kernels.
SOURCE = """
#include <torch/extension.h>

// A comment that calls x.matmul(y) needs nothing.
torch::Tensor scaled(torch::Tensor x, double by) {
  TORCH_CHECK(x.dim() == 2 && x.size(0) == x.sizes()[0], "rows and columns");
  const auto given = x.contiguous();
  auto result = torch::empty_like(given);
  AT_DISPATCH_FLOATING_TYPES(given.scalar_type(), "scaled", [&] {
    const auto* from = given.data_ptr<scalar_t>();
    auto* to = result.data_ptr<scalar_t>();
    for (int64_t i = 0; i < given.numel(); i++) to[i] = static_cast<scalar_t>(by) * from[i];
  });
  return result;
}

std::vector<torch::Tensor> made(torch::Tensor like) {
  return {torch::zeros({2, 3}, like.options()), torch::full({2}, 7.0, like.options().dtype(torch::kInt64)),
          torch::ones({2}, like.options().requires_grad(true)), at::sum(like.abs(), 0), like.to(torch::kDouble)};
}
"""


def extension(source: str = SOURCE, cpp: str = "", functions=("scaled", "made")) -> Extension:
    pairs = tuple((name, name) for name in functions)
    return Extension("lean", (SourceText(cpp),), (SourceText(source),), pairs)


def built(source: str, folder: Path, functions=("scaled", "made")):
    """The module that g++ makes of the source with the headers that are written for it."""
    headers = folder / "headers"
    lean.write(headers, INCLUDE, extension(source))
    asked = Extension("lean", (SourceText(source),), (), tuple((name, name) for name in functions))
    library, _ = TorchToolchain(cuda=False).compile_by_torch(asked, "lean", folder, str(headers))
    return loaded("lean", library)


def loaded(name: str, library: Path):
    spec = importlib.util.spec_from_file_location(name, library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_functions_compiled_with_less_do_what_torch_says(tmp_path):
    module = built(SOURCE, tmp_path)
    x = torch.randn(3, 4).t()
    assert torch.equal(module.scaled(x, 2.0), 2 * x)
    with pytest.raises(RuntimeError, match="rows and columns"):
        module.scaled(x[0], 2.0)
    zeros, full, ones, summed, doubled = module.made(x)
    assert torch.equal(zeros, torch.zeros(2, 3)) and torch.equal(full, torch.tensor([7, 7]))
    assert ones.requires_grad and torch.equal(ones, torch.ones(2))
    assert torch.equal(summed, x.abs().sum(0)) and torch.equal(doubled, x.double())
    declared = (tmp_path / "headers/ATen/core/TensorBody.h").read_text()
    assert "Tensor::abs()" in declared and "Tensor::matmul(" not in declared


HOST = """
torch::Tensor doubled(torch::Tensor x) {
  auto result = torch::empty_like(x);
  at::parallel_for(0, x.numel(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) result.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i];
  });
  return result;
}
"""


def host(source: str) -> Extension:
    return Extension("host", (SourceText(source),), (), (("doubled", ""),))


def test_cpp_without_kernels_is_compiled_with_less_as_load_inline_takes_it(tmp_path, monkeypatch):
    asked = []
    by_torch = TorchToolchain.compile_by_torch
    monkeypatch.setattr(TorchToolchain, "compile_by_torch", lambda *given: asked.append(given[4:]) or by_torch(*given))
    library, _ = TorchToolchain(cuda=False).compile(host(HOST), "host", tmp_path)
    assert torch.equal(loaded("host", library).doubled(torch.arange(9.0)), 2 * torch.arange(9.0))
    assert len(asked) == len(asked[0]) == 1, "once, with one folder of headers"


def test_what_they_leave_out_is_an_error_and_not_something_else(tmp_path):
    with pytest.raises(BuildFailed, match="no match for"):
        built("#include <torch/extension.h>\ntorch::Tensor both(torch::Tensor x) { return x + x; }", tmp_path, ["both"])


@pytest.fixture
def toolchain(monkeypatch):
    """One for a GPU elsewhere. What torch is asked to build, and with how many headers of ours, is kept in `asked`; it
    `refuses` so many of them, and `says` why."""
    monkeypatch.setattr(TorchToolchain, "asked", [], raising=False)
    monkeypatch.setattr(TorchToolchain, "refuses", 0, raising=False)
    monkeypatch.setattr(TorchToolchain, "says", "", raising=False)

    def compile_by_torch(self, extension, module_name, folder, *headers):
        self.asked.append([sorted(path.name for path in Path(header).iterdir()) for header in headers])
        self.folders = headers
        if len(self.asked) <= self.refuses:
            raise BuildFailed(self.says or f"error {len(self.asked)}")
        return folder / "made", ()

    monkeypatch.setattr(TorchToolchain, "compile_by_torch", compile_by_torch)
    return TorchToolchain(cuda=True, architecture="9.0")


def test_kernels_are_compiled_with_less_first_and_once(toolchain, tmp_path):
    assert toolchain.compile(extension(), "lean", tmp_path) == (tmp_path / "made", ())
    assert toolchain.asked == [[["ATen", "torch"]]]
    assert not list(tmp_path.iterdir()), "headers are not kept with the build"


def test_kernels_that_need_more_are_compiled_with_all(toolchain, tmp_path):
    toolchain.refuses = 1
    assert toolchain.compile(extension(), "lean", tmp_path) == (tmp_path / "made", ())
    assert toolchain.asked == [[["ATen", "torch"]], []]


def test_an_error_is_that_of_torchs_own_headers(toolchain, tmp_path):
    toolchain.refuses = 2
    with pytest.raises(BuildFailed, match="error 2"):
        toolchain.compile(extension(), "lean", tmp_path)


@pytest.mark.parametrize(
    ("source", "cpp"),
    [
        ("TORCH_LIBRARY(mine, library) {}", ""),
        ("#include <torch/nn.h>", ""),
        ("py::object given(py::object x) { return x; }", ""),
        ("__global__ void kernel() {}", "#include <torch/all.h>"),
    ],
)
def test_sources_that_say_that_they_need_more_get_all_at_once(toolchain, tmp_path, source, cpp):
    toolchain.compile(extension(source, cpp), "lean", tmp_path)
    assert toolchain.asked == [[]]


@pytest.mark.parametrize("header", ["torch/all.h", "torch/csrc/autograd/python_variable.h"])
def test_cpp_that_says_that_it_needs_more_gets_all_at_once(toolchain, tmp_path, header):
    toolchain.compile(host(f"#include <{header}>\n{HOST}"), "host", tmp_path)
    assert toolchain.asked == [[]]


def test_bindings_by_hand_see_all_of_torch(tmp_path):
    """nvcc alone sees less then."""
    lean.write(tmp_path, INCLUDE, extension(cpp="#include <torch/csrc/autograd/python_variable.h>"))
    text = (tmp_path / "ATen/core/TensorBody.h").read_text()
    assert "#ifdef __CUDACC__" in text and "#include_next <ATen/core/TensorBody.h>" in text


def test_a_torch_with_other_headers_is_used_as_it_is(toolchain, tmp_path):
    toolchain._headers = tmp_path / "elsewhere"
    toolchain.compile(extension(), "lean", tmp_path)
    assert toolchain.asked == [[]]


UNDEFINED = 'mine.cu:7: identifier "blokDim" is undefined'


def test_what_no_header_of_torchs_can_mend_is_not_built_again(toolchain, tmp_path):
    toolchain.refuses, toolchain.says = 2, UNDEFINED
    with pytest.raises(BuildFailed, match="blokDim"):
        toolchain.compile(extension(), "lean", tmp_path)
    assert len(toolchain.asked) == 1


@pytest.mark.parametrize(
    ("errors", "source", "own"),
    [
        (UNDEFINED, SOURCE, True),
        (f"{UNDEFINED}\nmine.cu:9: 'shared_sumz' was not declared in this scope", SOURCE, True),
        ("mine.cu:9: ‘shared_sumz’ was not declared in this scope; did you mean ‘shared_sum’?", SOURCE, True),
        ('mine.cu:7: identifier "AT_DISPATCH_INDEX_TYPES" is undefined', SOURCE, False),  # a macro of torch's
        ('mine.cu:7: identifier "INT_MAX" is undefined', SOURCE, False),  # of a header that torch's include
        (f'{UNDEFINED}\nmine.cu:8: class "at::Tensor" has no member "matmul"', SOURCE, False),
        (f"{UNDEFINED}\n… and 3 more errors", SOURCE, False),
        (UNDEFINED, f"#ifdef C10_API\n#endif\n{SOURCE}", False),
        ("", SOURCE, False),
    ],
)
def test_in_doubt_all_headers_are_tried(errors, source, own):
    assert lean.are_of_the_source(errors, INCLUDE, extension(source)) is own


def test_without_a_compiler_all_headers_are_tried(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert not lean.are_of_the_source(UNDEFINED, INCLUDE, extension())
