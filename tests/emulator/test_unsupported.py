"""What is legal CUDA and not emulated is said to be that, and a slip stays the source's own."""

from __future__ import annotations

import pytest

from harness.build.extension import BuildFailed, Unsupported
from harness.device.emulator.explaining import explained
from harness.protocol.extension import SourceText


def _explained(message: str) -> Exception:
    return explained(f"sub.py:7:5: error: {message}\n", [SourceText("", "sub.py", 7)])


@pytest.mark.parametrize(
    ("message", "lacks"),
    [
        ("'__vsetgtu4' was not declared in this scope; did you mean '__vaddus4'?", "__vsetgtu4"),
        ("'__nv_future_builtin' was not declared in this scope", "__nv_future_builtin"),
        ("'cudaSurfaceObject_t' does not name a type", "cudaSurfaceObject_t"),
        ("'cudaGraphAddKernelNode' was not declared in this scope", "cudaGraphAddKernelNode"),
        ("there are no arguments to 'cyl_bessel_i1' that depend on a template parameter, so", "cyl_bessel_i1"),
        ("'getCurrentCUDASolverDnHandle' is not a member of 'at::cuda'", "at::cuda::getCurrentCUDASolverDnHandle"),
        ("'cub::DeviceReduce' has not been declared", "cub::DeviceReduce"),
        ("'mbarrier_init' is not a member of 'cuda::ptx'", "cuda::ptx::mbarrier_init"),
        ("'mbarrier_init' is not a member of 'ptx'", "ptx::mbarrier_init"),  # namespace ptx = cuda::ptx
        ("'cuda::ptx' has not been declared", "cuda::ptx"),
        ("'BlockRadixSort' in namespace 'cub' does not name a template type", "cub::BlockRadixSort"),
        (
            "'class cooperative_groups::__v1::thread_block' has no member named 'barrier_arrive'",
            "barrier_arrive of cooperative_groups::__v1",
        ),
        (
            "no matching function for call to 'cub::BlockScan<float, 32>::InclusiveSum(float&, float&, Prefix&)'",
            "cub::BlockScan<float, 32>::InclusiveSum(float&, float&, Prefix&)",
        ),
        ("'TORCH_CUDASPARSE_CHECK' was not declared in this scope", "TORCH_CUDASPARSE_CHECK"),
        ("cusparse.h: No such file or directory", "the header cusparse.h"),
        ("cutlass/numeric_types.h: No such file or directory", "the header cutlass/numeric_types.h"),
        (
            "invalid use of 'struct kernel(float*)::emu_shared_31_tile'",
            "what stands here (the compiler says of the translated text: invalid use of 'struct "
            "kernel(float*)::emu_shared_31_tile')",
        ),
    ],
)
def test_what_cuda_has_and_the_emulator_has_not_is_no_fault_of_the_source(message, lacks):
    found = _explained(message)
    assert isinstance(found, Unsupported)
    assert str(found) == f"sub.py:7: the emulator does not support {lacks}."


@pytest.mark.parametrize(
    "message",
    [
        "'__syncthread' was not declared in this scope; did you mean '__syncthreads'?",
        "'sum' was not declared in this scope",
        "'idx' was not declared in this scope",
        "'cudaMalocc' was not declared in this scope",
        "'__shfl' was not declared in this scope",  # nvcc has it for older GPUs only
        "'getCurrentCUDAStream' is not a member of 'at::cuda'",  # its header is missing
        "'C10_CUDA_CHECK' was not declared in this scope",  # as of that
        "'TORCH_CUDA_CHEKC' was not declared in this scope",
        "'count' is not a member of 'mine'",
        "'class cooperative_groups::__v1::thread_block' has no member named 'synk'",
        "my_helpers.h: No such file or directory",
        "too few arguments to function 'void* emu::copy_bytes(void*, const void*, size_t)'",  # memcpy
    ],
)
def test_a_slip_is_the_sources_own(message):
    found = _explained(message)
    assert isinstance(found, BuildFailed)
    assert message.replace("emu::copy_bytes", "memcpy").split("'")[1 if "'" in message else 0] in str(found)


CALLS = """
from torch.utils.cpp_extension import load_inline

load_inline("calls", "void run();", '''

void run() { cudaMemPoolTrimTo(nullptr, 0); }
''', ["run"])
"""

RACES = """
from torch.utils.cpp_extension import load_inline

CUDA = '''
__global__ void kernel(float4* x) {
    x[threadIdx.x] = x[threadIdx.x + 1];
}
void run(torch::Tensor x) { kernel<<<1, 64>>>(reinterpret_cast<float4*>(x.data_ptr<float>())); }
'''

def run(torch):
    x = torch.arange(1024, dtype=torch.float32).cuda()
    load_inline("races", "void run(torch::Tensor x);", CUDA, ["run"]).run(x)
"""


def test_a_function_that_no_library_has_is_found_before_the_module_is_loaded(emulator, tmp_path):
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    answer = emulator.run(file)
    assert answer["error"] == f"Unsupported: {file}:6: the emulator does not support cudaMemPoolTrimTo."


def test_lines_of_a_units_first_function_are_known(emulator, tmp_path):
    file = tmp_path / "races.py"
    file.write_text(RACES)
    findings = emulator.run(file, "--check")["findings"]
    assert {(finding["kind"], finding["line"]) for finding in findings} == {("data_race", 6)}


REFUSED = """
from torch.utils.cpp_extension import load_inline

load_inline("refused", "void run();", '''{}''', ["run"])
"""
REFUSED_BY_NVCC = {
    "a local array": (
        "__global__ void k(int n) {\n    float a[n];\n    a[threadIdx.x] = 1;\n}\nvoid run() { k<<<1, 1>>>(3); }",
        "5: the array 'a' of a device function has a size that is known at run time alone: nvcc refuses this",
    ),
    "a local array of a template": (
        "template <class T> __device__ int f(T n) {\n    T a[n];\n    a[0] = 1;\n    return a[n - 1];\n}\n"
        "__global__ void k(int n) { f(n); }\nvoid run() { k<<<1, 1>>>(3); }",
        "5: an array of a device function has a size that is known at run time alone: nvcc refuses this",
    ),
    "parameters": (
        "struct Big { float v[8191], w; };\n__global__ void k(Big b, int n) {}\n"
        "void run() {\n    k<<<1, 1>>>(Big{}, 3);\n}",
        "7: static assertion failed: a kernel's parameters take 32,764 bytes at most, and these take more: nvcc "
        "refuses this",
    ),
    "constants": (
        "__constant__ float small[64 * 256];\n__constant__ float table[64 * 256 + 1];\nvoid run() {}",
        "5: static assertion failed: __constant__ variables have 64 KiB in all, which this one alone exceeds: nvcc "
        "refuses it",
    ),
}


@pytest.mark.parametrize(("text", "said"), REFUSED_BY_NVCC.values(), ids=REFUSED_BY_NVCC)
def test_what_nvcc_refuses_for_its_size_is_a_build_error_with_its_line(emulator, tmp_path, text, said):
    file = tmp_path / "refused.py"
    file.write_text(REFUSED.format(text))
    assert emulator.run(file)["error"] == f"BuildFailed: {file}:{said}"


def test_a_host_may_have_arrays_of_any_size_and_a_kernel_as_many_bytes_as_nvcc_takes(emulator, tmp_path):
    file = tmp_path / "taken.py"
    file.write_text(
        REFUSED.format(
            "struct Big { float v[8191]; };\n__global__ void k(Big b) { constexpr int n = 4; float a[n]; a[0] = 1; }\n"
            "void f(int n) { float a[n]; a[0] = 1; }\nvoid run() { k<<<1, 1>>>(Big{}); f(3); }"
        )
        + "\ndef run(torch): pass\n"
    )
    assert "error" not in emulator.run(file)


def test_a_name_that_nobody_knows_is_a_mistake_whatever_the_compiler_proposes():
    """g++ 12 proposes names of the emulator's own."""
    said = "'nothing' was not declared in this scope"
    error = explained(f"mine.py:3:9: error: {said}; did you mean 'emu::bind::Kind::nothing'?", [])
    assert isinstance(error, BuildFailed)
    assert str(error) == f"mine.py:3: {said}"


SOURCE = SourceText(
    "float sum(float bias) {\n  float total = 0  // of all\n\n  // then\n  for (;;) {}\n}", "mine.py", 3
)


@pytest.mark.parametrize(
    ("place", "message", "said"),
    [
        (7, "expected ',' or ';' before 'for'", "mine.py:4: expected ',' or ';' at its end, before 'for' in line 7"),
        (8, "expected ';' before '}' token", "mine.py:7: expected ';' at its end, before '}' in line 8"),
        (7, "expected ';' before '{' token", "mine.py:7: expected ';' before '{' token"),  # in the line's middle
        (3, "expected ';' before 'float'", "mine.py:3: expected ';' before 'float'"),  # nothing stands before it
        (5, "'bais' was not declared in this scope",
         "mine.py:5: 'bais' was not declared in this scope; did you mean 'bias'?"),
        (5, "'rstd' was not declared in this scope", "mine.py:5: 'rstd' was not declared in this scope"),
    ],
)  # fmt: skip
def test_a_slip_is_told_with_its_own_line_and_what_mends_it(place, message, said):
    assert str(explained(f"mine.py:{place}:3: error: {message}\n", [SOURCE])) == said


def test_of_a_header_that_is_not_there_it_is_said_where_it_may_be():
    found = str(explained("mine.py:3:10: fatal error: mine.cuh: No such file or directory\n", [SOURCE]))
    assert found.startswith("mine.py:3: mine.cuh: No such file or directory. ") and "extra_include_paths" in found
    inner = "/usr/include/a.h:3:10: fatal error: b.h: No such file or directory"
    assert str(explained(inner, [SOURCE])) == "/usr/include/a.h:3: b.h: No such file or directory"
