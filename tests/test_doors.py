"""Symbols that an extension takes from other libraries: which are refused, and which honest ones are not."""

import struct
import subprocess

import pytest

from harness.build.doors import ForbiddenSymbol, require_no_door, why_not
from harness.build.symbols import defined, demangled, undefined

DECLARED = """
namespace at { struct Tensor;
namespace cpu { void native_layer_norm(const Tensor&); void mm(const Tensor&); void add(const Tensor&); }
namespace native { void LayerNormKernel(); void vectorised_copy(); void mkldnn_linear_pointwise(); }
struct DynamicLibrary { void sym(const char*); };
namespace _ops { struct native_group_norm { static void redispatch(); static void call(); }; } }
namespace c10 { struct Dispatcher { static void realSingleton(); }; }
namespace torch { struct Library { static void _fallback(); static void _def(); };
namespace jit { void parseIR(); void parse(); void findOperatorFor();
void setTensorExprFuserEnabled(); void overrideCanFuseOnCPU(); struct StaticModule { static void run(); }; } }
namespace at::native { struct GeluKernel; template <typename F, typename Name> struct Holder { static F AVX2; }; }
extern "C" { void aoti_torch_cpu__fused_rms_norm(); void aoti_torch_cpu_mm_out();
void cudnnNormalizationForwardInference(); void cudnnBackendExecute(); void* dlsym(void*, const char*);
int dl_iterate_phdr(); void cudaGetDriverEntryPoint(); void dnnl_layer_normalization_forward_primitive_desc_create(); }
extern const at::Tensor& x;
"""

REFUSED = {
    "at::cpu::native_layer_norm(x)": "kernel of PyTorch",
    "at::native::LayerNormKernel()": "kernel of PyTorch",
    "at::_ops::native_group_norm::redispatch()": "kernel of PyTorch",
    "aoti_torch_cpu__fused_rms_norm()": "kernel of PyTorch",
    "torch::jit::parseIR()": "operators of its own",
    "torch::jit::StaticModule::run()": "operators of its own",
    "torch::jit::setTensorExprFuserEnabled()": "kernels of a graph",
    "torch::jit::overrideCanFuseOnCPU()": "kernels of a graph",
    "c10::Dispatcher::realSingleton()": "kernels that the dispatcher has replaced",
    "torch::jit::findOperatorFor()": "kernels that the dispatcher has replaced",
    "torch::Library::_fallback()": "kernels that the dispatcher has replaced",
    '((at::DynamicLibrary*)0)->sym("f")': "cudaGetDriverEntryPoint",
    "cudnnNormalizationForwardInference()": "library's own normalisation",
    "dnnl_layer_normalization_forward_primitive_desc_create()": "library's own normalisation",
    "cudnnBackendExecute()": "cuDNN's",
    'dlsym(0, "f")': "cudaGetDriverEntryPoint",
    "dl_iterate_phdr()": "cudaGetDriverEntryPoint",
}
HONEST = (
    "at::cpu::add(x)",
    "at::native::vectorised_copy()",
    "at::_ops::native_group_norm::call()",
    "cudaGetDriverEntryPoint()",
    "aoti_torch_cpu_mm_out()",
    "torch::jit::parse()",
    "torch::Library::_def()",
    "at::native::mkldnn_linear_pointwise()",
)


@pytest.fixture
def library(tmp_path):
    """Builds a shared library that makes one call."""

    def build(call, *flags):
        source, built = tmp_path / "source.cpp", tmp_path / "library.so"
        source.write_text(f"{DECLARED}\nvoid run() {{ {call}; }}\n")
        subprocess.run(["c++", "-shared", "-fPIC", source, "-o", built, *flags], check=True)
        return built

    return build


@pytest.mark.parametrize("call", REFUSED)
def test_a_door_is_refused_and_the_reason_said(call, library):
    with pytest.raises(ForbiddenSymbol, match=REFUSED[call]):
        require_no_door(library(call))


@pytest.mark.parametrize("call", HONEST)
def test_what_does_nothing_forbidden_is_let_through(call, library):
    built = library(call)
    assert call.partition("(")[0] in [demangled(symbol).partition("(")[0] for symbol in undefined(built)]
    require_no_door(built)


def test_a_problem_allows_and_forbids_operators(library):
    allowed = library("at::cpu::native_layer_norm(x)")
    require_no_door(allowed, allowed=["native_layer_norm"])
    product = library("at::cpu::mm(x)")
    require_no_door(product)
    with pytest.raises(ForbiddenSymbol, match="at::cpu::mm"):
        require_no_door(product, also=["mm"])


def test_a_product_with_a_forbidden_operator_inside_is_refused(library):
    with pytest.raises(ForbiddenSymbol, match="linear_pointwise"):
        require_no_door(library("at::native::mkldnn_linear_pointwise()"), also=["gelu"])


def test_a_kernel_that_a_variable_holds_is_refused_by_the_name_in_its_type(library):
    built = library("at::native::Holder<void (*)(int), at::native::GeluKernel>::AVX2(1)")
    require_no_door(built)
    with pytest.raises(ForbiddenSymbol, match="GeluKernel"):
        require_no_door(built, also=["gelu"])


@pytest.mark.parametrize("flags", [[], ["-Wl,--hash-style=sysv"], ["-Wl,--hash-style=gnu"]])
def test_what_a_library_defines_under_such_a_name_is_refused_too(library, flags):
    """Another library's function takes its place where that is in global scope."""
    built = library("} namespace at::cpu { void native_layer_norm(int) {}", *flags)
    assert "at::cpu::native_layer_norm(int)" in map(demangled, defined(built))
    with pytest.raises(ForbiddenSymbol, match="native_layer_norm"):
        require_no_door(built)


def test_symbols_are_read_as_the_loader_reads_them(library):
    """Without a table of sections, which is for other tools."""
    built = library("at::cpu::native_layer_norm(x)")
    content = bytearray(built.read_bytes())
    content[0x28:0x30], content[0x3C:0x40] = bytes(8), bytes(4)
    before = undefined(built), defined(built)
    built.write_bytes(content)
    assert (undefined(built), defined(built)) == before
    with pytest.raises(ForbiddenSymbol, match="native_layer_norm"):
        require_no_door(built)


def test_a_symbol_that_no_hash_table_counts_is_read_where_it_is_relocated(library):
    built = library("at::cpu::native_layer_norm(x)")
    gnu_hash, debug = struct.pack("<Q", 0x6FFFFEF5), struct.pack("<Q", 21)
    content = built.read_bytes()
    assert content.count(gnu_hash) == 1
    built.write_bytes(content.replace(gnu_hash, debug))
    with pytest.raises(ForbiddenSymbol, match="native_layer_norm"):
        require_no_door(built)


def test_python_may_not_look_up_what_an_extension_may_not_use():
    assert why_not("aoti_torch_cpu__fused_rms_norm")
    assert why_not("_ZN2at3cpu17native_layer_normERKNS_6TensorE")
    assert why_not("dlsym")
    assert not why_not("aoti_torch_cpu__fused_rms_norm", allowed=["_fused_rms_norm"])
    assert not any(map(why_not, ("dlopen", "aoti_torch_get_data_ptr", "dl_iterate_phdr", "__cxa_demangle")))


def test_a_file_that_is_no_library_is_said_to_be_none(tmp_path):
    for number, content in enumerate((b"no library", b"\x7fELF\x02\x01" + b"\xff" * 90)):
        path = tmp_path / f"{number}.so"
        path.write_bytes(content)
        with pytest.raises(ValueError, match="ELF file"):
            undefined(path)
