"""What nvcc would refuse must not pass because a host compiler is more liberal."""

from __future__ import annotations

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.build.extension import BuildFailed, Unsupported
from harness.device.emulator.translate import find_kernels, translate
from harness.protocol.extension import SourceText


def _translated(text: str, flags: tuple[str, ...] = ("--extended-lambda",)) -> str:
    return translate(SourceText(text, "sub.py", 10), find_kernels([text]), flags=flags).text


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


def test_operators_of_two_characters_stay_whole_and_a_cast_of_a_kernel_is_taken_off():
    text = "__global__ void k(float* y) { __shared__ float s[1 << 6]; y[0] = s[0]; }\n"
    text += "void run(void** a) { cudaLaunchKernel(reinterpret_cast<const void*>(k), 1, 32, a, 0, nullptr); }\n"
    translated = _translated(text)
    assert "float s[ 1 << 6 ]; }" in translated
    assert '::emu::api_call("k", __FILE__, __LINE__, false, dim3(1))(k, 1, 32' in translated


@pytest.mark.parametrize(
    ("declaration", "registered"),
    [
        ("__device__ int counter;", ["counter", "false"]),
        ("__constant__ float weights[4] = {1, 2};", ["weights", "true"]),
        ("namespace a { static __device__ __align__(16) Pair<int, 3> pairs[2][4]; }", ["pairs", "false"]),
        ("extern __device__ int elsewhere;", []),
        ("__device__ int function(int x);", []),
        ("template <class T> __device__ T zero;", []),
        ("__device__ struct Pair { int a; } make();", []),
    ],
)
def test_module_variables_are_registered_behind_their_declaration(declaration, registered):
    found = re.findall(r'ModuleVariable emu_variable_\d+_\w+\(\w+, "(\w+)", (\w+)\);', _translated(declaration))
    assert [word for one in found for word in one] == registered


@pytest.mark.parametrize(
    ("call", "translated"),
    [
        ("memcpy(a, b, 3);", "::emu::copy_bytes(a, b, 3);"),
        ("return std::memset(a, 0, 3);", "return ::emu::set_bytes(a, 0, 3);"),
        ("x = ::memmove(a, b, 3);", "x = ::emu::move_bytes(a, b, 3);"),
        ("\n#define COPY memcpy\n", "\n#define COPY ::emu::copy_bytes\n"),
        ("\n#define memcpy mine\n", "\n#define memcpy mine\n"),
        ("mine.memcpy(a, b, 3);", "mine.memcpy(a, b, 3);"),
        ("mine::memcpy(a, b, 3);", "mine::memcpy(a, b, 3);"),
        ("void* memcpy(void*, const void*, size_t);", "void* memcpy(void*, const void*, size_t);"),
    ],
)
def test_copies_of_bytes_are_the_emulators_own(call, translated):
    assert _translated(f"void f() {{ {call} }}") == f"void f() {{ {translated} }}"


def test_a_type_that_a_shared_variable_defines_stays_usable_behind_it():
    translated = _translated("__global__ void k() { __shared__ struct Pair { float v[2]; } a, b[1 << 2]; a = Pair{}; }")
    assert "{ struct Pair { float v [ 2 ] ; }; struct emu_shared_" in translated
    assert "Pair b[ 1 << 2 ]; }" in translated


def test_each_shared_variable_of_a_declaration_has_its_own_declarator():
    translated = _translated("__global__ void k() { __shared__ float *a, b[2], **c; }")
    assert [found.strip() for found in re.findall(r"struct emu_shared_\w+ {([^}]*)}", translated)] == [
        "float *a;",
        "float b[ 2 ];",
        "float **c;",
    ]


def test_dynamic_shared_memory_has_rows():
    translated = _translated("__global__ void k() { extern __shared__ float rows[][8]; }")
    assert "auto rows = reinterpret_cast<float (*)[ 8 ]>(::emu::dynamic_shared());" in translated


@pytest.mark.parametrize(
    "text",
    [
        "void f(dim3 gridDim, const dim3& blockDim);",
        "template <int gridDim> void f() { g(gridDim); }",
        "void f(dim3 gridDim, const dim3& blockDim) { g(gridDim, blockDim.x); }",
        "void f() { dim3 blockDim(64), gridDim{2}; g(gridDim, blockDim); }",
        "void f() { const dim3 gridDim = g(), blockDim = {64}; g(gridDim, blockDim); }",
        "struct Shape { dim3 gridDim, blockDim; unsigned f() const { return gridDim.x; } };",
    ],
)
def test_variables_of_ones_own_may_have_the_names_of_the_dimensions(text):
    kernel = "__global__ void k(int n) { h(blockDim.x * gridDim.x); }\n"
    assert _translated(kernel + text).endswith(text)
    assert _translated(text + kernel).endswith("{ h(::emu::block_dim().x * ::emu::grid_dim().x); }\n")


@pytest.mark.parametrize(
    "parameter", ["const float& f", "S && s", "float (&a)[4]", "A&&... a", "const std::array<float, 4>&", "int*& p"]
)
def test_a_parameter_of_a_kernel_is_no_reference(parameter):
    text = f"template <class S, class... A>\n__global__ void __launch_bounds__(32) k(float* y,\n{parameter});"
    with pytest.raises(BuildFailed, match=rf"^sub\.py:12: k is a kernel .* by reference \({re.escape(parameter)}\), "):
        _translated(text)


@pytest.mark.parametrize(
    "parameter",
    [
        "float (*f)(const float&, S&&)",
        "F<float(const float&)> f",
        "T<decltype(a & b)> t",
        "T<(sizeof(S) & 1)> t",
        "float (*rows)[A & 3]",
        "std::enable_if_t<std::is_same_v<S, float&>, int> n",
    ],
)
def test_a_reference_within_a_parameters_type_is_left_alone(parameter):
    assert _translated(
        f"__device__ float f(const float& x, S&& s);\n__global__ void k({parameter}, int n = A & 3) {{}}"
    )


SHARED_OF_FILE = "__shared__ float s[4];\n"


@pytest.mark.parametrize(
    ("text", "uses"),
    [
        ("__global__ void k() { s[0] = s[1]; }", 2),
        ("__device__ float f(const float* s) { return s[0]; }\n__global__ void k() { s[0] = 1; }", 1),
        ("float f(float* s);\ntemplate <int s> __device__ int g() { return s; }", 0),
        ("struct P { int s; int f() { return s; } };\n__global__ void k(P p) { s[0] = p.s + P{.s = 2}.s; }", 1),
        ("__global__ void k() { s[0] = 1; { float a, *s = g(); a = *s; } s[1] = 2; }", 2),
        ("__global__ void k() { for (int s = 0; s < 4; s++) g(s); s[0] = 1; f(2 * s[1], n < s[2]); }", 3),
        ("__global__ void k() { auto f = [](float s) { return s; }; s[0] = f(s[1]); }", 2),
        ("#define FIRST s[0]\n__global__ void k() { g(other::s); v.s(); }", 1),
        ("__global__ void k() { ::s[0] = 1; __shared__ float t[sizeof(s)]; }", 2),
    ],
)
def test_uses_of_a_shared_variable_of_the_file_are_told_from_others_of_its_name(text, uses):
    translated = _translated(SHARED_OF_FILE + text)
    assert len(re.findall(r"shared<(?:::)?emu_shared_17_s>\(\)\.s", translated.replace(" ", ""))) == uses
    assert translated.count("\n") == text.count("\n") + 1


def test_a_shared_variable_of_a_namespace_is_found_in_it():
    translated = _translated("namespace q { __shared__ float s[4]; }\n__global__ void k() { q::s[0] = other::s; }")
    assert "(::emu::shared<q::emu_shared_31_s>().s)[0] = other::s" in translated


WRONG_SIDE = {
    "a host calls what is for the device": (
        "__device__ float twice(float x) { return 2 * x; }\n"
        "template <class T> __device__ T same(T x) { return x; }\n"
        "float f() { return 1 + same<float>(twice(3)); }",
        r"12: f runs on the host and calls same, which is a __device__ function",
    ),
    "a kernel throws": (
        "__global__ void k(int n) { if (n < 0) throw n; }",
        r"10: k runs on the device, where nvcc has no",
    ),
    "a function of both sides throws": (
        "__host__ __device__ void f() { throw 1; }",
        r"10: f runs on the device, where",
    ),
    "a kernel catches": ("__global__ void k() {\ntry { g(); } catch (int) {}\n}", r"11: k runs on the device, where"),
    "a kernel reads a host's variable": (
        "static float scale = 2;\n__global__ void k(float* y) { *y = scale; }",
        r"11: k runs on the device and uses scale, which is a variable of the host",
    ),
    "a device function reads a host's table": (
        "namespace a {\nint table[4] = {1, 2}, other;\n__device__ int f(int i) { return table[i]; }\n}",
        r"12: f runs on the device and uses table",
    ),
    "a host assigns to a variable of the device": (
        "__device__ float scale = 1;\n__global__ void k(float* y) { *y = scale; }\n"
        "void run(float* y) {\nscale = 2; k<<<1, 1>>>(y); }",
        r"13: run runs on the host and assigns to scale, which is a variable of the device",
    ),
    "a host assigns to a constant's element": (
        "namespace a {\n__constant__ float w[2];\nvoid set(float x) { g(w); w[1] = x; }\n}",
        r"12: set runs on the host and assigns to w",
    ),
    "a kernel uses torch's check": (
        "__global__ void k(int n) { TORCH_CHECK(n > 0, n); }",
        r"10: k runs on the device and uses TORCH_CHECK, which is the host's",
    ),
    "a kernel prints by a stream": ("__global__ void k(int n) { std::cout << n; }", r"10: k .* uses std::cout"),
    "a pragma in the kernel": (
        "float f(float x) { return x; }\n__global__ void k(float* y) {\n#pragma unroll 1\n"
        "for (int i = 0; i < 4; i++) y[i] = f(1);\n}",
        r"13: k runs on the device and calls f",
    ),
    "a constant table at a place known at run time": (
        "static const float w[4] = {1, 2};\n__global__ void k(float* y) { int i = *y; y[0] = w[i] + w[2]; }",
        r"11: k .* reads w at a place that is known at run time",
    ),
    "a constexpr table for each thread": (
        "constexpr float w[4] = {1, 2};\n__global__ void k(float* y) { y[0] = w[threadIdx.x % 4]; }",
        r"11: k .* reads w at a place",
    ),
    "a shared variable has a value": (
        "__global__ void k() {\n__shared__ int a, b = 3;\n}",
        "11: a __shared__ variable",
    ),
    "a shared array has values": ("__global__ void k() { __shared__ float s[4] = {0}; }", "10: a __shared__ variable"),
    "a shared variable has braces": ("__global__ void k() { __shared__ struct P { int a; } p{}; }", "10: a __shared__"),
    "a shared variable of the file": ("__shared__ int count = 0;", "10: a __shared__ variable"),
}


@pytest.mark.parametrize(("text", "said"), WRONG_SIDE.values(), ids=WRONG_SIDE)
def test_what_stands_on_the_wrong_side_is_a_build_error_with_its_line(text, said):
    with pytest.raises(BuildFailed, match=rf"^sub\.py:{said}"):
        _translated(text)


def test_a_lambda_of_the_device_needs_a_flag():
    text = "void run() { each([=] __device__(int i) { return i; }); }"
    assert all(_translated(text, (flag,)) for flag in ("--extended-lambda", "-expt-extended-lambda"))
    with pytest.raises(BuildFailed, match=r"sub\.py:10: a lambda is marked __device__, .* extra_cuda_cflags"):
        _translated(text, ("-O3",))


NVCC = shutil.which("nvcc")


@pytest.mark.skipif(NVCC is None, reason="NOT TESTED HERE: nvcc, which says what it refuses, is not on the path")
def test_nvcc_refuses_it_too(tmp_path):
    """All in one compilation: nvcc says of each in which line it stands."""
    not_refused = ("torch", "stream", "assigns")  # the last it warns of
    texts = [text for name, (text, _) in WRONG_SIDE.items() if not any(word in name for word in not_refused)]
    for number, text in enumerate(texts):
        file = tmp_path / f"{number}.cu"
        file.write_text(
            "__device__ __host__ void g();\n" + text.replace("__global__ void k(", "__global__ void kernel(")
        )
    commands = [[NVCC, "-std=c++17", "-arch=sm_80", "-c", "-o", "/dev/null", file] for file in tmp_path.glob("*.cu")]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda command: subprocess.run(command, capture_output=True, text=True), commands))
    assert len(done) == len(texts) > 8
    assert [one.args[-1].read_text() for one in done if one.returncode == 0 or "error" not in one.stderr] == []


RIGHT_SIDE = {
    "a lambda of the device": "__device__ int f(int x) { return x; }\n"
    "void run() { each([=] __device__(int i) { return f(i); }); }",
    "for both": "__host__ __device__ int f(int x) { return x; }\nint g() { return f(1); }",
    "one for each side": "__device__ int f(int x) { return x; }\nint f(int x);\nint g() { return f(1); }",
    "a kernel": "__global__ void k(int n);\nvoid run() { k<<<1, 1>>>(1); auto* p = &k; }",
    "a member of the same name": "__device__ int size(int);\nint g(T t) { return t.size(1) + T::size(1); }",
    "its type alone": "__device__ int f(int x) { return x; }\nvoid g() { using T = decltype(f(1)); }",
    "a host throws": "void f() { try { g(); } catch (int) { throw; } }\n__global__ void k() {}",
    "constants": "const int n = 3; constexpr float f = 2; __constant__ float c[4]; __device__ int d = 1;\n"
    "__global__ void k(float* y) { *y = n * f + c[0] + d; }",
    "a parameter of the same name": "float scale = 1;\n__global__ void k(float* y, float scale) { *y = scale; }",
    "a local of the same name": "int n = 1;\n__global__ void k(float* y) { int n = 2; for (;;) y[n] = n; }",
    "a template's parameter": "int n = 1;\ntemplate <int n> __global__ void k(float* y) { *y = n; }",
    "a parameter behind a directive": "__global__ void k(int a,\n#ifdef B\nint b,\n#endif\nshort w, int h) { w < h; }",
    "the size of a host's": "int table[4];\n__global__ void k(int* y) { *y = sizeof(table) / sizeof(table[0]); }",
    "a member": "int scale = 1;\nstruct P { int scale; };\n__global__ void k(int* y, P p) { *y = p.scale; }",
    "arguments of a type": "std::map<int, float> known;\n__global__ void k(float* y) { *y = int(3); }",
    "a macro's": "#define MY float scale\nMY = 1;\n__global__ void k(float* y) { MY = 2; *y = scale; }",
    "marked by a macro in small letters": "#define device_fn static __device__\n"
    "device_fn float f(float x) { return x; }\n"
    "__global__ void k(float* y) { *y = f(1); }",
    "marked in a condition": "#ifdef __CUDACC__\n__host__ __device__\n#endif\nfloat f(float x) { return x; }\n"
    "__global__ void k(float* y) { *y = f(1); }",
    "a constant marked in a condition": "#ifdef __CUDACC__\n__constant__\n#endif\nfloat t[4];\n"
    "__global__ void k(float* y) { *y = t[1]; }",
    "a function of torch's for tensors": "__device__ float sigmoid(float x) { return x; }\n"
    "at::Tensor f(at::Tensor x) { return sigmoid(x); }",
    "a template's parameter that is called": "float act(float x) { return x; }\n"
    "template <float (*act)(float)> __global__ void k(float* y) { *y = act(1); }",
    "a type of that name in a namespace": "float add(float a, float b);\nnamespace ops { struct add {}; }\n"
    "__global__ void k(float* y) { *y = add()(1, 2); }",
    "a template that nobody uses": "template <class T> __device__ T f(T x) { throw 1; }",
    "a function in a type alone": "float f(float x);\n__global__ void k(float* y) { decltype(2 * f(1)) a; }",
    "a second variable of a loop": "static int n;\n"
    "__global__ void k(int* y) { for (int i = 0, n = 4; i < n;) y[i] = n; }",
    "a second variable behind braces": "static int n;\n"
    "__global__ void k(int* y) { int a[2] = {1, 2}, n[2]; n[0] = *y; }",
    "a parameter of a lambda": "static int n;\n"
    "__global__ void k(int* y) { auto f = [](int* n) -> void { *n = 1; }; f(y); }",
    "a structured binding": "static int n;\n__global__ void k(P p) { auto [m, n] = p; g(m + n); }",
    "an array by pointer": "static int n;\n__global__ void k(float (*n)[33]) { n[0][0] = 1; }",
    "an enumerator": "static int n;\n__global__ void k(int* y) { enum { n = 3 }; *y = n; }",
    "a variable of another namespace": "namespace a { int width; }\nconstexpr int width = 3;\n"
    "__global__ void k(int* y) { *y = width; }",
    "a constant table at a known place": "constexpr float w[4] = {1, 2};\n__global__ void k(float* y) { *y = w[2]; }",
    "a shared array of a conditional type": "template <class T> __global__ void k() {\n"
    "__shared__ std::conditional_t<sizeof(T) <= 2, float, T> s[32]; __shared__ Buf<8, 3 == 3> b; }",
    "a managed variable that the host sets": "__managed__ int n;\n__device__ __managed__ int m;\n"
    "void f() { n = 1; m = 2; }",
    "a host's local of the name of a device's": "__device__ float a, b;\n"
    "void f(float a) { a = 1; float c = 2, b; b = 3; }",
    "a device's variable of another namespace": "namespace a { __device__ int n; }\nint n;\nvoid f() { n = 2; }",
    "a host that copies to a variable": "__device__ int n, m;\nvoid f() { cudaMemcpyToSymbol(n, g(m), 4); }",
    "a lambda of the device that sets a variable": "__device__ int n;\n"
    "void f() { each([=] __device__(int i) { n = i; }); }",
    "a kernel and a function of both sides that set a variable": "__device__ int n;\n__global__ void k() { n = 1; }\n"
    "__host__ __device__ void f() { n = 2; }",
    "a kernel that a macro makes, beside a function": "#define MAKE(name) __global__ void name(float* p, int n) {}\n"
    "MAKE(scale)\nvoid scale(float* p) { scale<<<1, 32>>>(p, 3); }",
    "a shared variable with an alignment": "__global__ void k() { __shared__ __align__(16) int a, b[2]; a = 1; }",
    "a shared variable of a type's size": "__global__ void k() { __shared__ float s[sizeof(int) == 4 ? 8 : 4]; }",
}  # fmt: skip


@pytest.mark.parametrize("text", RIGHT_SIDE.values(), ids=RIGHT_SIDE)
def test_what_stands_on_the_right_side_is_left_alone(text):
    assert _translated(text)


def test_a_shared_variable_with_an_attribute_behind_it_has_no_initializer():
    with pytest.raises(Unsupported, match=r"sub\.py:10: the emulator does not support this __shared__ declaration"):
        _translated("__global__ void k() { __shared__ int a __attribute__((aligned(16))); a = 1; }")
