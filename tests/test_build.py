"""load_inline in a worker: located sources, a cache by content, and what compilers print."""

import os
import re
from pathlib import Path

import pytest

from harness.build import intercept, torch_toolchain
from harness.build.compiler_output import kernel_resources, short_errors
from harness.build.extension import BuildFailed
from harness.build.locate import locate
from harness.build.wrong_call import unknown_keyword
from harness.isolation import builds
from harness.protocol.extension import Extension, SourceText
from tests.helpers import run_eval

FIXTURES = Path(__file__).parent / "fixtures"
PROBLEM = FIXTURES / "problems" / "small_layernorm.py"


def write(tmp_path, text):
    path = tmp_path / "submission.py"
    path.write_text(text)
    return path


def test_a_literal_is_located_at_its_line(tmp_path):
    path = write(tmp_path, 'a = 1\nSOURCE = """\nint f();\n"""\n')
    assert locate("\nint f();\n", path) == SourceText("\nint f();\n", "submission.py", 2)


def test_a_source_made_of_a_literal_and_more_is_located_through_it(tmp_path):
    path = write(tmp_path, 'BODY = """\nint f();\nint g();\nint h();\n"""\nSOURCE = "#define A 1\\n" + BODY\n')
    located = locate("#define A 1\n\nint f();\nint g();\nint h();\n", path)
    # The literal begins on line 1 and one line stands before it: no line of the file is the first, so none is claimed.
    assert located.line == 0
    path = write(tmp_path, '\n\nBODY = """\nint f();\nint g();\nint h();\n"""\nSOURCE = "#define A 1\\n" + BODY\n')
    assert locate("#define A 1\n\nint f();\nint g();\nint h();\n", path).line == 2


def test_a_computed_source_is_passed_on_without_a_line(tmp_path):
    assert locate("int f();", write(tmp_path, "x = 1\n")).located == "int f();"


def test_the_digest_depends_on_everything_that_is_built():
    base = Extension("a", (SourceText("int f();"),), extra_cflags=("-O2",))
    digest = base.digest("gcc 12")
    others = [
        Extension("b", (SourceText("int f();"),), extra_cflags=("-O2",)).digest("gcc 12"),
        base.digest("gcc 13"),
        Extension("a", (SourceText("int g();"),), extra_cflags=("-O2",)).digest("gcc 12"),
        Extension("a", (SourceText("int f();"),), extra_cflags=("-O3",)).digest("gcc 12"),
        Extension("a", (), cuda_sources=(SourceText("int f();"),), extra_cflags=("-O2",)).digest("gcc 12"),
    ]
    assert len({digest, *others}) == 6


PTXAS = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z6kernelILi4EEvPKfPfi' for 'sm_90'
ptxas info    : Function properties for _Z6kernelILi4EEvPKfPfi
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 1024 bytes smem, 376 bytes cmem[0]
ptxas info    : Compiling entry function '_Z5plainPf' for 'sm_90'
ptxas info    : Function properties for _Z5plainPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""


def test_the_compilers_report_gives_registers_shared_memory_and_spills():
    first, second = kernel_resources(PTXAS)
    assert "kernel" in first.kernel
    assert (first.registers, first.shared_bytes, first.spill_store_bytes, first.spill_load_bytes) == (40, 1024, 12, 8)
    assert (second.registers, second.shared_bytes, second.spill_store_bytes) == (8, 0, 0)


def test_errors_are_few_short_and_given_once():
    output = "\n".join(
        ["[1/3] nvcc -c x.cu", 'submission.py(12): error: identifier "x" is undefined']
        + ["/usr/include/torch/all.h:9:1: note: in expansion"]
        + ['submission.py(12): error: identifier "x" is undefined']
        + [f"/tmp/main.cpp:{n}:5: error: expected ';'" for n in range(20, 30)]
    )
    lines = short_errors(output).splitlines()
    assert lines[0] == 'submission.py:12: identifier "x" is undefined'
    assert lines[1] == "main.cpp:20: expected ';'"
    assert lines[-1] == "… and 6 more errors"


# Built with a header of a few lines in torch's place: what is tested here is the way to the compiler. torch's own is
# built against by test_cuda_submissions.
NATIVE = f'''
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

extension = load_inline(name="shift", cpp_sources="""
#include <cstdlib>
int answer() {{ return ANSWER; }}
""", functions=["answer"], extra_include_paths=[{str(FIXTURES / "light")!r}])


class ModelNew(nn.LayerNorm):
    def forward(self, x):
        raise RuntimeError(f"the answer is {{extension.answer()}}")
'''


def judged(path):
    (evaluation,) = run_eval(path, "--problem", PROBLEM, "--device", "cpu").results["evaluations"]
    return evaluation


def test_extensions_of_one_name_do_not_collide_and_a_second_run_does_not_compile(tmp_path):
    """Each submission gets what its own source says, whatever the other left in the cache."""
    for answer in ("41", "42"):
        evaluation = judged(write(tmp_path, NATIVE.replace("ANSWER", answer)))
        assert f"the answer is {answer}" in evaluation["message"]
    assert judged(tmp_path / "submission.py")["build"]["cached"] is True


OWN_HEADERS = """
from torch.utils.cpp_extension import load_inline

extension = load_inline(name="own", no_implicit_headers=True, cpp_sources='''
#include <pybind11/pybind11.h>
#ifdef TORCH_CHECK
#error torch's headers are here
#endif
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("answer", [] { return 43; }); }
''')
raise RuntimeError(f"the answer is {extension.answer()}")
"""


def test_a_source_with_headers_of_its_own_is_compiled_without_torchs(tmp_path):
    assert "the answer is 43" in judged(write(tmp_path, OWN_HEADERS))["message"]


def test_an_error_names_the_line_of_the_python_file(tmp_path):
    evaluation = judged(write(tmp_path, NATIVE.replace("ANSWER", "no_such_name")))
    assert evaluation["reason"] == "build_failed"
    assert "submission.py:7:" in evaluation["message"]


LAUNCHING = """
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = '''
__global__ void kernel(const float* x, float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x]; }
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    kernel<<<1, 32>>>(ARGUMENTS);
    return y;
}
'''
extension = load_inline(name="launching", cpp_sources="torch::Tensor run(DECLARED);", cuda_sources=CUDA,
                        functions=["run"])

class ModelNew(nn.LayerNorm):
    def forward(self, x):
        return extension.run(x)
"""


@pytest.mark.parametrize(
    ("declared", "arguments", "said"),
    [
        (
            "torch::Tensor x",
            "x.data_ptr<float>(), y.data_ptr<float>()",
            r"submission.py:\d+: the kernel takes \(const float\*, float\*, int\) and is launched with "
            r"\(float\*, float\*\)$",
        ),
        (
            "torch::Tensor x",
            "x.data_ptr<float>(), y.data_ptr<double>(), 8",
            r"submission.py:\d+: cannot convert 'double\*' to 'float\*'$",
        ),
        (
            "torch::Tensor x, double eps",
            "x.data_ptr<float>(), y.data_ptr<float>(), 8",
            r"^Nothing defines run\(torch::Tensor, double\), which is declared",
        ),
    ],
    ids=["an argument that is missing", "an argument of another type", "a declaration that nothing defines"],
)
def test_a_slip_in_a_launch_or_a_declaration_is_named_in_cudas_words(declared, arguments, said, tmp_path):
    source = LAUNCHING.replace("DECLARED", declared).replace("ARGUMENTS", arguments)
    run = run_eval(write(tmp_path, source), "--problem", PROBLEM, "--device", "emulator")
    (evaluation,) = run.results["evaluations"]
    assert evaluation["reason"] == "build_failed"
    assert re.search(said, evaluation["message"]), evaluation["message"]


@pytest.mark.parametrize(
    ("written", "instead", "said"),
    [
        ("<<<1, 32>>>", "<<<1>>>", "a launch needs a grid and a block"),
        ("__global__ void kernel", "__global__ float kernel", "a kernel returns void, and this one returns float"),
        ("__global__ void kernel", "void kernel", "'kernel' is launched, and is no kernel: write __global__ before"),
        ('cpp_sources="', 'cpp_sources=CUDA, cuda_sources="', "a launch in cpp_sources, which nvcc does not compile"),
    ],
    ids=["no block", "a kernel that returns", "no __global__", "CUDA in cpp_sources"],
)
def test_a_launch_that_cuda_has_not_is_said_in_its_words(written, instead, said, tmp_path):
    source = LAUNCHING.replace("DECLARED", "torch::Tensor x").replace(
        "ARGUMENTS", "x.data_ptr<float>(), y.data_ptr<float>(), 8"
    )
    source = source.replace(written, instead)
    if "cpp_sources=CUDA" in source:
        source = source.replace('x);", cuda_sources=CUDA', 'x);"')
    run = run_eval(write(tmp_path, source), "--problem", PROBLEM, "--device", "emulator")
    (evaluation,) = run.results["evaluations"]
    assert evaluation["reason"] == "build_failed"
    assert re.search(r"submission.py:\d+: " + re.escape(said), evaluation["message"]), evaluation["message"]


def test_a_run_adds_a_bounded_amount_to_the_cache(tmp_path, monkeypatch):
    """A worker's folder may hold files that take no room there, being holes, and would take it in the cache."""
    monkeypatch.setattr(builds, "MAX_BYTES", 1 << 20)
    for number in range(4):
        folder = tmp_path / "build" / f"{number:032x}"
        folder.mkdir(parents=True)
        for name in ("kernels.json", "sources.json"):
            (folder / name).write_text("[]")
        with open(folder / f"hole_{number:016x}.so", "wb") as file:
            file.truncate(400_000)
    builds.keep(tmp_path / "build", tmp_path / "cache")
    kept = [path.stat().st_size for path in (tmp_path / "cache").rglob("*.so")]
    assert kept == [400_000] * 2


@pytest.mark.parametrize(
    ("call", "reason", "said"),
    [
        (
            "load_inline('a', cpp_sources='', extra_cuda_cflag=['-O3'])",
            "load_failed",
            "Did you mean 'extra_cuda_cflags'?",
        ),
        ("load_inline('a', cpp_sourcs='')", "load_failed", "missing 1 required positional argument: 'cpp_sources'"),
        ("load_inline('a', cpp_sources='', fast=1)", "load_failed", "unexpected keyword argument 'fast'"),
        (
            "load('a', ['kernel.cu'])",
            "build_failed",
            "Give the sources as text to torch.utils.cpp_extension.load_inline",
        ),
    ],
)
def test_what_load_inline_does_not_take_is_named_before_anything_is_built(call, reason, said, tmp_path):
    path = write(tmp_path, f"from torch.utils.cpp_extension import load, load_inline\n{call}\n")
    (evaluation,) = run_eval(path, "--problem", PROBLEM, "--device", "cpu").results["evaluations"]
    assert evaluation["reason"] == reason
    assert said in evaluation["message"]


def test_what_torch_takes_beside_is_taken():
    assert {"use_pch", "keep_intermediates"} <= intercept._KEYWORDS
    assert "Did you mean 'keep_intermediates'" in str(unknown_keyword("keep_intermediate", intercept._KEYWORDS))


@pytest.mark.parametrize("forks", [False, True])
def test_a_compiler_that_hangs_is_a_build_that_failed(tmp_path, monkeypatch, forks):
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\nfor word; do [ "$word" = -c ] && sleep 8; done\nexec c++ "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr(torch_toolchain, "BUILD_TIMEOUT_S", 4)
    toolchain = torch_toolchain.TorchToolchain(cuda=False, forks=forks)
    extension = Extension("slow", (SourceText("int answer() { return 41; }"),), no_implicit_headers=True)
    with pytest.raises(BuildFailed, match="did not finish"):
        toolchain.compile_by_torch(extension, "slow", tmp_path)


def test_what_loading_a_build_runs_has_no_file_of_who_builds(tmp_path, monkeypatch):
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    source = """
        #include <cstdlib>
        #include <filesystem>
        #include <fstream>
        __attribute__((constructor)) void look() {
            std::ofstream seen(std::getenv("SEEN"));
            for (auto& file : std::filesystem::directory_iterator("/proc/self/fd"))
                seen << file.path() << std::filesystem::read_symlink(file.path()) << "\\n";
        }
    """
    arena = os.memfd_create("arena")
    os.set_inheritable(arena, True)
    extension = Extension("looks", (SourceText(source),), no_implicit_headers=True)
    torch_toolchain.TorchToolchain(cuda=False, forks=True).compile_by_torch(extension, "looks", tmp_path)
    os.close(arena)
    seen = (tmp_path / "seen").read_text()
    assert "/proc/self/fd/1" in seen and "arena" not in seen
