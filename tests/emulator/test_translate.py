"""What nvcc would refuse must not pass because a host compiler is more liberal."""

from __future__ import annotations

import pytest

from harness.build.extension import BuildFailed, SourceText
from harness.device.emulator.translate import find_kernels, translate


def _translated(text: str) -> str:
    return translate(SourceText(text, "sub.py", 10), find_kernels([text])).text


CALLS_HOST = {
    "a kernel": "float square(float x) { return x * x; }\n__global__ void k(float* y) { y[0] = square(2); }",
    "a device function": "inline float f(float x);\nnamespace a {\n__device__ float g(float x) { return f(x) + 1; }\n}",
    "a template": "template <typename T>\nT f(T x) { return x; }\n__global__ void k(float* y) { *y = 1 + f<int>(2); }",
}


@pytest.mark.parametrize("text", CALLS_HOST.values(), ids=CALLS_HOST)
def test_a_host_function_called_on_the_device_is_a_build_error_with_its_line(text):
    with pytest.raises(BuildFailed, match=r"^sub\.py:1[12]: (k|g) runs on the device and calls (square|f), which"):
        if text.count("\n") == 1:
            text = "\n" + text
        _translated(text)


USE = "__global__ void k() { f(1); }"
CALLS_DEVICE = {
    "declared for the device": "__device__ float f(float);\nfloat f(float x) { return x; }\n" + USE,
    "for both": "__host__ __device__ float f(float x) { return x; }\n" + USE,
    "an overload of CUDA's": "template <class T>\nT rsqrt(T x) { return 1 / sqrt(x); }\n"
    "__global__ void k(float* y) { *y = rsqrt(*y); }",
    "constexpr": "constexpr int up(int a, int b) { return (a + b - 1) / b; }\n__global__ void k() { up(1, 2); }",
    "marked by a macro": "#define HD __host__ __device__\nHD float f(float x) { return x; }\n" + USE,
    "a macro": "#define TWICE(x) (2 * (x))\n__global__ void k(float* y) { *y = TWICE(1); }",
    "a lambda of the same name": "float f(float x) { return x; }\n"
    "__global__ void k(float* y) { auto f = [](float x) { return x; }; *y = f(1); }",
    "a functor": "void op(int);\ntemplate <class F> __global__ void k(float* y, F op) { *y = op(1); }",
    "a member": "void load(int);\n__global__ void k(T t) { t.load(1); T::load(2); }",
    "the host's own": "void f();\nvoid launch() { f(); }\n__global__ void k() {}",
    "a variable": "dim3 size(1);\n__global__ void k() { int size(3); }",
    "decided by the preprocessor": "void f();\n__global__ void k() {\n#ifndef __CUDA_ARCH__\nf();\n#endif\n}",
}


@pytest.mark.parametrize("text", CALLS_DEVICE.values(), ids=CALLS_DEVICE)
def test_what_may_be_called_on_the_device_is_left_alone(text):
    assert _translated(text)


def test_a_kernel_checks_its_launch_bounds():
    text = "template <int N>\n__global__ void __launch_bounds__(2 * N, 1) k(float* y) { y[0] = N; }"
    assert "{ ::emu::launch_bound(2 * N , 1); y[0]" in _translated(text)


@pytest.mark.parametrize(
    "header", ["ATen/cuda/CUDABlas.h", "cub/device/device_reduce.cuh", "c10/cuda/CUDAGraphsC10Utils.h"]
)
def test_headers_of_libraries_that_are_not_there_are_refused_by_name(header):
    from harness.build.extension import Unsupported

    with pytest.raises(Unsupported, match=f"sub.py:10: the emulator does not support the header <{header}>"):
        _translated(f"#include <{header}>\n")


def test_a_launch_of_a_kernel_whose_name_a_macro_puts_together():
    text = "#define RUN(kind) void run_##kind() { add_##kind##_kernel<<<1, 2>>>(3); }\n"
    assert "{ ::emu::Launcher(EMU_TEXT(add_ ## kind ## _kernel), " in _translated(text)


def test_a_macro_over_several_lines_stays_one():
    text = "#define RUN(T) \\\n  add<T> \\\n  <<<1, \\\n  2>>>( \\\n  3);\nint next;\n"
    translated = _translated(text)
    assert translated.count("\n") == text.count("\n")
    assert all(line.endswith("\\") for line in translated.splitlines()[:4])
    assert "add < T >(emu_a...)" in translated


def test_headers_that_the_emulator_has_are_kept():
    text = "#include <ATen/cuda/CUDAContext.h>\n#include <cub/block/block_reduce.cuh>\n"
    assert _translated(text) == text
