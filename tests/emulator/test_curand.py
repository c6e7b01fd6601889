"""cuRAND's device functions in emulated kernels give what its header gives on the host, and Philox's known answers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.build.extension import Unsupported
from harness.device.emulator import paths
from harness.device.emulator.translate import find_kernels, translate
from harness.protocol.extension import SourceText

HERE = Path(__file__).parent

MAIN = r"""
#include <cuda_runtime.h>
#include <curand_kernel.h>
#include <cstdio>
%s
int main() {
    static unsigned bits[32 * %d];
    static double numbers[24 * %d];
    for (int i = 0; i < %d; i++) stream(i, bits, numbers);
    printf("[[0");
    for (unsigned word : bits) printf(", %%d", int(word));
    printf("], [0");
    for (double number : numbers) printf(", %%.17g", number);
    printf("]]");
}
"""


def _constants() -> dict[str, Any]:
    """What curand.py says, which cannot be imported without the emulator."""
    text = (HERE / "curand.py").read_text()
    draw = text.split('DRAW = r"""', 1)[1].split('"""', 1)[0]
    streams = int(text.split("STREAMS = ", 1)[1].split("\n", 1)[0])
    return {"draw": draw, "streams": streams}


@pytest.fixture(scope="module")
def on_host(tmp_path_factory) -> tuple[list[int], list[float]]:
    """The header's own words and numbers, compiled for the host without anything of the emulator."""
    said = _constants()
    n = said["streams"]
    folder = tmp_path_factory.mktemp("curand")
    (folder / "main.cpp").write_text(MAIN % (said["draw"], n, n, n))
    includes = [word for path in paths.cuda_includes() for word in ("-isystem", str(path))]
    command = [paths.compiler(), "-std=c++20", "-O1", "-ffp-contract=off", "-w", *includes, "main.cpp", "-o", "main"]
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run([folder / "main"], capture_output=True, text=True, check=True)
    words, numbers = json.loads(done.stdout)
    return words[1:], numbers[1:]


@pytest.fixture(scope="module", params=[(), ("--check",)], ids=["fast", "check"])
def drawn(request, emulator) -> dict[str, Any]:
    answer = emulator.run(HERE / "curand.py", *request.param)
    assert "error" not in answer, answer["error"]
    assert answer["findings"] == []
    return answer["result"]


def _flat(rows: list[list[Any]]) -> list[Any]:
    return [value for row in rows for value in row]


def test_kernels_draw_what_the_header_draws_on_the_host(drawn, on_host):
    words, numbers = on_host
    assert _flat(drawn["bits"]) == words
    assert len(set(words)) > 0.9 * len(words)
    assert _flat(drawn["numbers"]) == numbers


def test_philox_gives_the_known_answers_of_random123(drawn):
    assert drawn["answers"] == [
        [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ]


def _xorwow(seed: int) -> list[int]:
    """The first words of Marsaglia's generator ("Xorshift RNGs", 2003), begun as cuRAND begins it."""
    low, high = (seed & 0xFFFFFFFF) ^ 0xAAD26B49, (seed >> 32) ^ 0xF7DCEFDD
    first, second = 1099087573 * low & 0xFFFFFFFF, 2591861531 * high & 0xFFFFFFFF
    d = (6615241 + first + second) & 0xFFFFFFFF
    v = [(123456789 + first) & 0xFFFFFFFF, 362436069 ^ first, (521288629 + second) & 0xFFFFFFFF]
    v += [88675123 ^ second, (5783321 + first) & 0xFFFFFFFF]
    words = []
    for _ in range(8):
        t = v[0] ^ v[0] >> 2
        v = [*v[1:], (v[4] ^ v[4] << 4 ^ t ^ t << 1) & 0xFFFFFFFF]
        d = (d + 362437) & 0xFFFFFFFF
        words.append((v[4] + d) & 0xFFFFFFFF)
    return words


def test_xorwow_is_marsaglias(drawn):
    assert [word & 0xFFFFFFFF for word in drawn["bits"][2][:8]] == _xorwow(0)


def test_states_in_memory_go_on_from_launch_to_launch(drawn):
    assert len(set(drawn["uniform"])) == 128
    assert all(0 < number <= 1 for number in drawn["uniform"])


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("curandStateMtgp32 state;", "cuRAND's MTGP32"),
        ("#include <curand_mtgp32_host.h>", "the header <curand_mtgp32_host.h>"),
    ],
)
def test_another_generator_is_refused_by_name(text, lacks):
    with pytest.raises(Unsupported, match=lacks):
        translate(SourceText(text, "sub.py", 1), find_kernels([text]))


def test_without_the_headers_it_is_said_where_they_come_from(monkeypatch):
    monkeypatch.setattr(paths, "has_curand", lambda: False)
    text = "#include <curand_kernel.h>"
    with pytest.raises(Unsupported, match="pip install nvidia-curand"):
        translate(SourceText(text, "sub.py", 1), find_kernels([text]))
