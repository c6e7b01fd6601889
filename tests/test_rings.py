"""Rings in shared memory: right when they have come round; those that three submissions have are alike."""

import re

import pytest

from tests.helpers import ALL_DETECTORS, ROOT, run_eval

PROBLEMS = ROOT / "tests" / "fixtures" / "problems"
RING = ROOT / "submissions" / "layernorm" / "speed_of_light.py"
RING_WITH_STATISTICS = ROOT / "submissions" / "layernorm_forward" / "speed_of_light.py"
RING_OF_OPTIONS = ROOT / "submissions" / "layernorm_options" / "read_once.py"
RING_OF_STEPS = ROOT / "submissions" / "rmsnorm_train" / "read_once.py"
SIGNATURES = (
    "P* y, Mail* mail, int rows, int blocks, float eps)",
    "P* y, float* mean_of, float* inv_std_of, Mail* mail, int rows,\n          int blocks, float eps)",
)
KNOWN = "const Statistics statistics = {row.mean, row.correction, rstd};"
WRITTEN_DOWN = " if (block == 0 && threadIdx.x == 0) write_down(statistics, mean_of, inv_std_of, row_of(turn));"
SLICES = {
    RING: PROBLEMS / "rows_of_slices.py",
    RING_WITH_STATISTICS: PROBLEMS / "statistics_of_slices.py",
    RING_OF_OPTIONS: PROBLEMS / "options_of_slices.py",
    RING_OF_STEPS: PROBLEMS / "steps_of_long_rows.py",
}
# Two blocks in all, and nothing but the ring: the emulator has room for a team to every row, and then none comes round.
TWO_BLOCKS = ("resident = ring_blocks", "resident = 2 + 0 * ring_blocks")
IF_IT_CAN = ("if (ring(call)) return;", 'TORCH_CHECK(ring(call), "not by the ring"); return;')
ASKED = "ring<P>(call, !kWide || packs <= kClusterPacks)"
IF_IT_CAN_IN_ITS_TYPE = (f"if ({ASKED}) return;", f'TORCH_CHECK({ASKED}, "not by the ring"); return;')
NO_CLUSTERS = (
    ("kFewPacks = 128 * 1024;", "kFewPacks = 0;"),
    ("kClusterPacks = 16 * 1024;", "kClusterPacks = 0;"),
)
OR_SPLIT = (
    "if (!ring<T, kSize>(call)) split<T, kSize>(call);",
    'const bool by_ring = ring<T, kSize>(call); TORCH_CHECK(by_ring, "not by the ring");',
)
# One cluster in all, for however few rows.
ONE_CLUSTER = ("return attribute(cudaDevAttrMultiProcessorCount);", "return 2;")
IF_IT_HAS_ROWS = ("by_two = 2 * rows >= multiprocessors() && ", "by_two = ")
BY_TWO = (
    "if (by_two && by_ring<kSize, kPacks, 2>(packs)) return;",
    'if (by_two) { TORCH_CHECK((by_ring<kSize, kPacks, 2>(packs)), "not by the ring"); return; }',
)
BY_ITS_RING = {
    RING: (TWO_BLOCKS, IF_IT_CAN_IN_ITS_TYPE, *NO_CLUSTERS),
    RING_WITH_STATISTICS: (TWO_BLOCKS, IF_IT_CAN),
    RING_OF_OPTIONS: (TWO_BLOCKS, OR_SPLIT),
    RING_OF_STEPS: (ONE_CLUSTER, IF_IT_HAS_ROWS, BY_TWO),
}


def judged_by_its_ring(path, folder, *options, changes=()):
    """The run of a copy of the submission, with `changes`, in which a few blocks have all rows."""
    text = path.read_text()
    for found, instead in (*BY_ITS_RING[path], *changes):
        assert text.count(found) == 1, found
        text = text.replace(found, instead)
    submission = folder / path.name
    submission.write_text(text)
    return run_eval(submission, "--problem", SLICES[path], *options, timeout_s=1500)


@pytest.mark.parametrize(
    "path",
    [
        RING_OF_STEPS,
        RING_WITH_STATISTICS,
        pytest.param(RING, marks=pytest.mark.whole("minutes; the ring that gives statistics is the same one")),
        pytest.param(RING_OF_OPTIONS, marks=pytest.mark.whole("minutes; the rings of others are run")),
    ],
    ids=lambda p: p.parent.name,
)
def test_a_ring_is_accepted_when_it_has_come_round(path, tmp_path):
    """A team's later rows find the slots, the barriers and the places for sums that the first had."""
    run = judged_by_its_ring(path, tmp_path, *ALL_DETECTORS, "--timeout", "900")
    assert run.code == 0, run.results


@pytest.mark.parametrize(
    ("path", "waits"),
    [
        (RING_WITH_STATISTICS, "wait(&vacated[place.slot], place.parity ^ 1);"),
        (RING_OF_STEPS, "while (word >> 32 != turn) word = atomicAdd(here, Mail(0));"),
    ],
    ids=["a free slot", "the other block's sum"],
)
def test_a_ring_that_does_not_wait_is_rejected(path, waits, tmp_path):
    """So the test above can fail."""
    plain = ("--device", "emulator", "--no-timing", "--timeout", "45")
    run = judged_by_its_ring(path, tmp_path, *plain, changes=[(waits, "")])
    assert [e["status"] for e in run.results["evaluations"]] == ["rejected"], run.results


def ring_of(path):
    """The lines of `path` from the words for barriers to the end of the kernel."""
    text = path.read_text()
    end = text.index("\n}\n", text.index("ring_rows(const"))
    return text[text.index("__device__ __forceinline__ unsigned shared_address") : end]


def test_the_ring_that_gives_statistics_is_the_other_one_but_for_them():
    """A submission is one file, so it stands in both: what is mended in one is mended in the other."""
    expected = ring_of(RING).replace(*SIGNATURES).replace(KNOWN, KNOWN + WRITTEN_DOWN)
    assert len(expected.splitlines()) > 400
    assert ring_of(RING_WITH_STATISTICS).split() == expected.split()


WRAPPERS = ("shared_address", "make_barrier", "arrive", "is_over", "wait", "evicted_first", "show_to_copies",
            "bulk_load", "bulk_prefetch", "bulk_store", "take_registers", "leave_registers")  # fmt: skip


def movers_of(text):
    """The ring's warps that load and store."""
    start = text.index("if (warp == kLoader && lane == 0)")
    return text[start : text.index("} else if (warp", text.index("} else if (warp == kStorer", start) + 1)].split()


def function_of(text, name):
    """The words of a function, up to the brace at the beginning of a line."""
    start = re.search(rf"\b{name}\(", text).start()
    return text[start : text.index("\n}\n", start)].split()


def test_the_ring_of_options_copies_and_waits_as_the_other_one_does():
    text = RING_OF_OPTIONS.read_text()
    alike = RING.read_text().replace("wait_for_stores<kStoresUnderWay>", "wait_for_stores")
    alike = re.sub(r"\bkChunks\b", "kRingChunks", re.sub(r"\bkChunk\b", "kRingChunk", alike))
    assert movers_of(text) == movers_of(alike)
    for name in WRAPPERS:
        assert function_of(text, name) == function_of(alike, name)
