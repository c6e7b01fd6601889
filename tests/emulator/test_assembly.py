"""Inline PTX: what it computes, and what is refused by name."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from harness.build.extension import BuildFailed, Unsupported
from harness.device.emulator.translate import find_kernels, translate
from harness.protocol.extension import SourceText

HERE = Path(__file__).parent


@pytest.fixture(scope="module", params=[(), ("--check", "--order", "reverse")], ids=["fast", "check"])
def values(request, emulator) -> dict[str, Any]:
    answer = emulator.run(HERE / "assembly.py", *request.param)
    assert "error" not in answer, answer["error"]
    assert answer["findings"] == []
    return answer["result"]


def test_cache_hints(values):
    assert values["hints"][:128] == [i if i % 4 < 3 else i + i - 2 for i in range(128)]


def test_cp_async_with_and_without_zeros(values):
    expected = [4 * (31 - t) + 1 + (1000 * (4 * t + 2) if t % 2 else 0) for t in range(32)]
    assert values["small_copies"][:32] == expected


def test_bulk_copies_and_mbarriers(values):
    assert values["bulk"][:256] == [sum(256 * r + 255 - t for r in range(3)) for t in range(256)]


def test_arithmetic_and_special_registers(values):
    y = values["arithmetic"]
    assert y[:32] == [8.5] * 32
    assert y[32:64] == [2 * t + 1 for t in range(32)]
    assert y[64:96] == [t + (700 if t >= 16 else 900) for t in range(32)]
    assert y[96:128] == [1 + 20 + 600 + 5000] * 32
    assert y[128:160] == [t ^ 1 for t in range(32)]
    assert y[160] == 32
    assert y[192:224] == [3 * t if t % 2 else -1 for t in range(32)]


@pytest.mark.parametrize("options", [(), ("--check",)], ids=["fast", "check"])
def test_single_instructions_of_all_types(emulator, options):
    answer = emulator.run(HERE / "instructions.py", *options)
    assert "error" not in answer, answer["error"]
    assert answer["findings"] == []
    loaded = ast.parse((HERE / "instructions.py").read_text())
    (table,) = (n.value for n in loaded.body if isinstance(n, ast.Assign) and n.targets[0].id == "CHECKS")
    for (text, _, _, _, expected), lanes in zip(ast.literal_eval(table), answer["result"]["checks"], strict=True):
        assert lanes == [expected] * 32, text
    assert answer["result"]["sums"] == [16, 16, *(3 + t for t in range(32))]


REFUSED = {
    'asm volatile("wgmma.fence.sync.aligned;");': "wgmma.fence.sync.aligned",
    'asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0}, {%1};" : "=f"(x) : "f"(y));': "mma.sync",
    'asm("add.rm.f32 %0, %1, %2;" : "=f"(x) : "f"(y), "f"(z));': "add.rm.f32",
    'asm("ld.global.mystery.f32 %0, [%1];" : "=f"(x) : "l"(p));': "ld.global.mystery.f32",
    'asm("add.sat.s32 %0, %1, %2;" : "=r"(x) : "r"(y), "r"(z));': "add.sat.s32",
    'asm("{ .reg .pred p, q; setp.gt.f16x2 p|q, %1, %2; }" : "=r"(x) : "r"(y), "r"(z));': "setp.gt.f16x2",
    'asm("{ .reg .b32 r<100000>; mov.b32 r0, %0; }" : : "r"(x));': ".reg .b32 r",
    'asm("bfind.shiftamt.u32 %0, %1;" : "=r"(x) : "r"(y));': "bfind.shiftamt.u32",
    "nvcuda::wmma::fragment<int> f;": "wmma",
    "#include <thrust/sort.h>": "thrust/sort.h",
    "cudaGraphCreate(&g, 0);": "CUDA graphs that are built node by node",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_has_no_emulation_is_refused_with_its_name_and_line(text):
    piece = SourceText(f"// a comment\n\n{text}\n", "sub.py", 40)
    with pytest.raises(Unsupported) as error:
        translate(piece, find_kernels([piece.text]))
    assert str(error.value).startswith("sub.py:42: ")
    assert REFUSED[text] in str(error.value)


def test_names_of_operands_are_refused_as_nvcc_refuses_them():
    piece = SourceText('__global__ void k(float* y) { asm("mov.f32 %[r], 1.0;" : [r] "=f"(*y)); }', "sub.py", 3)
    with pytest.raises(BuildFailed, match=r"sub.py:3: an operand of asm has a name in brackets"):
        translate(piece, find_kernels([piece.text]))
