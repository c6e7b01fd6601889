"""Counters of kernels for which they can be worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def answer(emulator) -> dict[str, Any]:
    answer = emulator.run(HERE / "counting.py", "--check")
    assert answer["findings"] == []
    return answer


@pytest.fixture(scope="module")
def counts(answer) -> dict[str, dict[str, Any]]:
    return {entry["kernel"]: entry for entry in answer["counts"]}


def test_bytes_and_launches(counts):
    assert counts["coalesced"]["launches"] == 2
    assert counts["coalesced"]["global_read_bytes"] == 2 * 4096
    assert counts["coalesced"]["global_write_bytes"] == 2 * 4096


def test_sectors_of_each_warp_access(counts):
    assert counts["coalesced"]["sectors"] == counts["coalesced"]["ideal_sectors"] == 2 * 2 * 128
    assert counts["vectors"]["sectors"] == counts["vectors"]["ideal_sectors"] == 2 * 32
    assert counts["strided"]["sectors"] == 128 + 16
    assert counts["strided"]["ideal_sectors"] == 16 + 16
    assert counts["broadcast"]["sectors"] == 2 * (1 + 4)


def test_bank_conflicts_and_their_line(answer, counts):
    assert counts["transposed"]["worst_bank_conflict"] == 32
    assert counts["transposed"]["bank_conflicts"] == 32 * 31
    assert counts["transposed"]["worst_bank_conflict_line"] == answer["result"]
    assert counts["padded"]["bank_conflicts"] == 0


def test_atomics_and_barriers(counts):
    assert counts["counted"]["atomics"] == 2 * 2 * 64
    assert counts["counted"]["barriers"] == 2 * 2


def test_a_kernel_launched_through_a_parameter_has_its_own_name(counts):
    """One of a namespace without a name is no symbol of the module, and keeps the parameter's."""
    assert {name: counts[name]["launches"] for name in ("scaled", "doubled", "kernel")} == {
        "scaled": 3,
        "doubled": 3,
        "kernel": 3,
    }
