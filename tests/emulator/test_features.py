"""Results of CUDA's libraries and language features against plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module", params=[(), ("--order", "random"), ("--check",)], ids=["fast", "random", "check"])
def values(request, emulator) -> dict[str, Any]:
    answer = emulator.run(HERE / "features.py", *request.param)
    assert "error" not in answer, answer["error"]
    assert answer["findings"] == []
    return answer["result"]


def test_cooperative_groups(values):
    y = values["groups"]
    for t in range(64):
        first = t // 8 * 8
        assert y[t] == sum(range(first, first + 8))
        assert y[64 + t] == sum(range(first, t + 1))
        assert y[128 + t] == sum(range(first, t))
        assert y[192 + t] == first + 3 + (t ^ 1) * 1000
        warp = [i for i in range(t // 32 * 32, t // 32 * 32 + 32) if i % 3 == 0]
        assert y[256 + t] == (len(warp) + 100 * warp.index(t) + 10000 * warp[0] if t in warp else -1)
        assert y[320 + t] == t // 32 * 32 + 30 + t % 2


def test_cub(values):
    y = values["primitives"]
    assert y[:128] == [sum(range(t)) for t in range(128)]
    assert y[128:256] == [sum(range(t + 1)) for t in range(128)]
    assert y[256:384] == [2 * t * 1000 + 2 * t + 1 for t in range(128)]
    assert y[384:388] == [sum(range(w * 32, w * 32 + 32)) for w in range(4)]
    assert y[400:403] == [sum(range(128)), 99, sum(range(50))]
    assert y[403:405] == [sum(range(7)), sum(range(256))]
    assert y[405:408] == [sum(range(32, 37)), 1000 + 32 + 33, sum(range(32, 64))]


def test_block_scans_with_a_prefix_and_with_an_operator(values):
    y = values["prefixes"]
    assert y[:128] == [sum(range(t + 1)) for t in range(128)]
    assert y[128:384] == [sum(range(t)) for t in range(256)]
    assert y[384:640] == [5 + sum(range(t + 1)) for t in range(256)]
    last = [max((i for i in range(t + 1) if i % 5 == 1), default=0) for t in range(64)]
    assert y[640:704] == [before or 1061 for before in [0, *last[:-1]]]
    assert y[704:768] == last
    assert y[768:832] == [before or 7 for before in [0, *last[:-1]]]


def test_asynchronous_copies(values):
    y = values["copies"]
    assert y[:64] == [4 * (63 - t) + (256 + 4 * (63 - t) + 1) * 1000 for t in range(64)]
    assert y[64:128] == [512 + 4 * (63 - t) + 2 for t in range(64)]


def test_bulk_copies_by_cuda_barrier(values):
    expected = [[4 * t, 4 * t + 1 + 128 + 4 * (31 - t) + 2, 4 * t + 2, 4 * t + 3] for t in range(32)]
    assert values["in_bulk"][:128] == [value for four in expected for value in four]


def test_a_copy_is_not_there_before_it_is_waited_for(values):
    y = values["too_early"]
    assert y[:32] == [-1] * 32
    assert y[32:64] == [4 * t for t in range(32)]


def test_clusters_share_their_memory(values):
    sums = [sum(range(4)), sum(range(4, 8))]
    assert values["clusters"][:8] == [sums[b // 4] + 1000 * (b % 4) for b in range(8)]
    pairs = [b // 2 * 2 for b in range(8)]
    assert values["clusters_ex"][:8] == [2 * p + 1 + 1000 * (b % 2) for b, p in enumerate(pairs)]


def test_half_types(values):
    y = values["halfs"]
    assert y[:64] == [2 * t + 1 for t in range(64)]
    assert y[64:96] == [6.28125 + 0.5] * 32
    assert y[96:128] == [4 * (t ^ 1) + 1 for t in range(32)]
    assert y[128:160] == [2 * t + 1 + 1000 for t in range(32)]


def test_votes_and_atomics(values):
    y = values["votes"]
    assert y[:32] == [16 + 100] * 32
    assert y[32:64] == [sum(range(32)) + 16000] * 32
    assert y[64:96] == [5 if t < 30 else 2 for t in range(32)]
    assert y[96:128] == [t - 2 if t % 8 >= 2 else t for t in range(32)]
    assert y[128:160] == [1] * 32
    assert y[160:164] == [31, 32, 5, 2]


def test_launches_in_every_form(values):
    factors = (2, 3, 4, 5, 6)
    assert values["launches"][:40] == [t * factors[t // 8] for t in range(40)]
