"""Kernels compiled for architectures that are not here, and what they need."""

import io
import re
from dataclasses import replace

import msgspec
import psutil
import pytest
from rich.console import Console

from harness.gate.config import Config
from harness.gate.rules import decide
from harness.gate.values import Compiled
from harness.protocol.extension import SourceText
from harness.report.gating import print_outcome
from harness.tools import compiling
from tests.gate.candidates import candidate
from tests.helpers import is_alive
from tests.sample_results import UNTIMED

NVCC = """#!/bin/sh
echo "$@" >> {log}
for word in "$@"; do case $word in -arch=*) arch=${{word#-arch=}};; esac; done
echo "ptxas info    : Compiling entry function '_Z5twicePKfPfi' for '$arch'"
echo "    8 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads"
echo "ptxas info    : Used 42 registers, used 1 barriers, 128 bytes smem"
"""


@pytest.fixture
def nvcc(tmp_path):
    path = tmp_path / "nvcc"
    path.write_text(NVCC.format(log=tmp_path / "log"))
    path.chmod(0o755)
    return path


def test_each_kernel_has_a_row_for_each_architecture(nvcc, tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELGATE_CACHE", str(tmp_path / "cache"))
    flags = ("-O3", "--use_fast_math", "-arch=sm_70", "-ccbin=/tmp/evil")
    source = SourceText("int a;", "x.py", 3)
    extension = compiling.Extension(name="x", cpp_sources=(), cuda_sources=(source,), extra_cuda_cflags=flags)
    renamed = replace(extension, cuda_sources=(replace(source, file="y.py"),))
    built = {"one": extension, "two": extension, "three": renamed}  # for two versions of a device, and as another file
    for folder, of in built.items():
        kept = compiling.build_cache("a" * 64) / folder / compiling.SOURCES
        kept.parent.mkdir(parents=True)
        kept.write_bytes(msgspec.json.encode(of))
    found = dict(compiling.compile_for(nvcc, "a" * 64, ["sm_80", "sm_120"]))
    assert list(found) == ["sm_80", "sm_120"]
    assert [(k.registers, k.shared_bytes, k.spill_store_bytes + k.spill_load_bytes)
            for kernels in found.values() for k in kernels.kernels] == [(42, 128, 12)] * 2  # fmt: skip
    said = (tmp_path / "log").read_text()
    assert "-O3 --use_fast_math" in said and "-arch=sm_80" in said
    assert "sm_70" not in said and "evil" not in said
    compiled = tuple(Compiled(name, kernels.kernels) for name, kernels in found.items())
    page = Console(width=200, file=io.StringIO())
    print_outcome(page, decide([candidate(UNTIMED, compiled=compiled)], Config()), quiet=False)
    assert re.search(r"sm_120 +42 +12 +128", page.file.getvalue())


def kept_build(extension):
    """As a submission's process may have left it: nobody knows that `load_inline` was given this."""
    path = compiling.build_cache("a" * 64) / "one" / compiling.SOURCES
    path.parent.mkdir(parents=True)
    path.write_bytes(msgspec.json.encode(extension))


@pytest.mark.parametrize("line", ['#include "/etc/hostname"', '#include "../../secret"', "#include NAME", "%: embed X"])
def test_a_build_that_a_submission_made_up_reads_no_file_of_the_runners(line, nvcc, tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELGATE_CACHE", str(tmp_path / "cache"))
    kept_build(compiling.Extension(name="x", cpp_sources=(), cuda_sources=(SourceText(f"int a;\n{line}\n", "", 0),)))
    ((_, said),) = compiling.compile_for(nvcc, "a" * 64, ["sm_90"])
    assert said.error == f"`{line}` may read a file beside the submission, which is one file."
    assert not (tmp_path / "log").exists()


def test_nothing_is_left_of_a_compiler_that_takes_too_long(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compiling, "TIMEOUT_S", 1)
    slow = tmp_path / "nvcc"
    slow.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path / 'child'}\nsleep 600\n")
    slow.chmod(0o755)
    kept_build(compiling.Extension(name="x", cpp_sources=(), cuda_sources=(SourceText("int a;", "", 0),)))
    ((_, said),) = compiling.compile_for(slow, "a" * 64, ["sm_90"])
    assert said.error == "The compiler did not finish within 1 s."
    child = int((tmp_path / "child").read_text())
    _, alive = psutil.wait_procs([p for p in psutil.process_iter() if p.pid == child], timeout=20)
    assert not [p for p in alive if is_alive(p)]


@pytest.mark.parametrize(
    "flag",
    ["-ccbin=sh", "--compiler-bindir=sh", "-o/tmp/x", "--output-file=x", "-Xcompiler", "--options-file=x",
     "-include=/etc/passwd", "-DX='$(sh)'", "--run", "-MF", "-dryrun", "-std=c++14"],
)  # fmt: skip
def test_a_submissions_flags_start_and_write_nothing(flag):
    assert compiling.kept_flags([flag, "-DX=1", "-O2", "--maxrregcount=64"]) == ["-DX=1", "-O2", "--maxrregcount=64"]


@pytest.mark.skipif(compiling.find_nvcc() is None, reason="there is no nvcc here")
def test_nvcc_itself_says_what_a_kernel_needs(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELGATE_CACHE", str(tmp_path / "cache"))
    text = """__global__ void twice(float* y) {
        __shared__ float last[32];
        last[threadIdx.x] = y[0];
        __syncthreads();
        y[threadIdx.x] = last[31 - threadIdx.x];
    }"""
    for name, source in (("a", text), ("b", "\n__global__ void wrong() { z = 1; }")):
        kept = compiling.build_cache(name * 64) / "one" / compiling.SOURCES
        kept.parent.mkdir(parents=True)
        located = SourceText(source, "mine.py", 7)
        plain = compiling.Extension(name="x", cpp_sources=(), cuda_sources=(located,), no_implicit_headers=True)
        kept.write_bytes(msgspec.json.encode(plain))
    ((_, right),) = compiling.compile_for(compiling.find_nvcc(), "a" * 64, ["sm_90"])
    ((_, wrong),) = compiling.compile_for(compiling.find_nvcc(), "b" * 64, ["sm_90"])
    assert [(k.kernel, k.shared_bytes, k.spill_store_bytes) for k in right.kernels] == [("twice", 128, 0)]
    assert right.kernels[0].registers > 0
    assert (wrong.kernels, wrong.error) == ((), 'mine.py:8: identifier "z" is undefined')


def test_nvcc_of_pypis_packages_is_found(tmp_path, monkeypatch):
    package = tmp_path / "nvidia" / "cu13" / "bin"
    package.mkdir(parents=True)
    (package / "nvcc").write_text("#!/bin/sh\n")
    (package / "nvcc").chmod(0o755)
    monkeypatch.setattr(compiling, "_packages", lambda: [str(package.parent)])
    monkeypatch.setattr(compiling, "USUAL_HOME", str(tmp_path / "none"))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert compiling.find_nvcc() == package / "nvcc"
    monkeypatch.setattr(compiling, "_packages", list)
    assert compiling.find_nvcc() is None
