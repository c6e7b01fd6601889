"""What decides a round cannot be worked out: neither from what a worker saw of it, nor from the run's seed."""

import ctypes
import os
import subprocess

import numpy as np
import pytest
import torch

from harness.device.host import HostDevice
from harness.device.memory_file import MemoryFile
from harness.errors import HarnessError
from harness.oracle import expect
from harness.timing.data import keystream, unpredictable
from harness.timing.data.case_data import prepare_case
from harness.timing.data.data_set import DataSet
from tests.helpers import ROOT

CPU = torch.device("cpu")


def of_the_kernel(tmp_path, key, first, count):
    """Words of the keystream as bytes, by the function that torch compiles for a GPU, compiled for a CPU."""
    words = ", ".join(str(word) for word in np.frombuffer(key, dtype=np.int32))
    program = f"""
#include <cstdio>
{keystream.SOURCE}
int main() {{
  for (int index = {first}; index != {first + count}; ++index) {{
    const unsigned word = chacha20_word<int>(index, {words});
    std::fwrite(&word, sizeof word, 1, stdout);
  }}
}}
"""
    source, binary = tmp_path / "words.cpp", tmp_path / "words"
    source.write_text(program)
    subprocess.run(["g++", "-w", "-o", binary, source], check=True)
    return subprocess.run([binary], check=True, capture_output=True).stdout


def test_the_keystream_is_that_of_the_standard(tmp_path):
    """RFC 8439, appendix A.1: test vectors 1 and 2 of the block function, and 3, whose key is not zero."""
    assert of_the_kernel(tmp_path, bytes(32), 0, 32).hex() == (
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
    )
    assert of_the_kernel(tmp_path, bytes(31) + b"\1", 16, 16).hex() == (
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
        "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0"
    )


def test_torch_finds_the_kernel_in_its_source():
    """By its name, which a pattern takes from the text."""
    assert torch.cuda.jiterator._CodeParser(keystream.SOURCE).function_name == "chacha20_word"


def test_a_draw_on_a_gpu_has_a_key_of_its_own(monkeypatch):
    keys = []
    monkeypatch.setattr(unpredictable, "keystream", lambda key, count, device: keys.append((key, count)))
    for count in (3, 3, 5):
        unpredictable.words(count, torch.device("cuda"))
    assert [count for _, count in keys] == [3, 3, 5]
    assert len({key for key, _ in keys}) == 3 and {len(key) for key, _ in keys} == {32}


def test_a_kernel_that_gives_wrong_numbers_is_refused(monkeypatch):
    """It may have been exchanged where torch keeps it."""
    monkeypatch.setattr(torch.cuda.jiterator, "_create_jit_fn", lambda *_, **__: lambda index, **_words: index * 0)
    with pytest.raises(HarnessError, match="PYTORCH_KERNEL_CACHE_PATH"):
        keystream.keystream(bytes(32), 4, CPU)
    with pytest.raises(ValueError, match="2,147,483,649 words"):
        keystream.keystream(bytes(32), (1 << 31) + 1, CPU)


@pytest.mark.parametrize("below", [1, 3, 1000, 1 << 31, 1 << 40])
def test_integers_fill_their_range_evenly(below):
    drawn = unpredictable.integers(below, (200, 500), CPU)
    assert drawn.min() >= 0 and drawn.max() < below
    # The mean of n uniform numbers has a deviation of below / sqrt(12 n): seven of them are one in 4e11.
    assert abs(drawn.double().mean() - (below - 1) / 2) <= 7 * below / (12 * drawn.numel()) ** 0.5


def test_integers_below_a_tensor_stay_below_each_of_it():
    below = torch.tensor([1, 2, 1024, 7])
    drawn = unpredictable.integers(below, (40_000, 4), CPU)
    assert (drawn.amax(0) == below - 1).all() and (drawn.amin(0) == 0).all()


@pytest.mark.parametrize("shape", [(), (0,), (3, 33), (1000, 100)])
def test_coins_and_shares_have_their_shapes_and_are_fair(shape):
    coins, shares = unpredictable.coins(shape, CPU), unpredictable.shares(shape, CPU)
    assert coins.shape == shares.shape == shape
    if len(shape) == 2 and shape[0] == 1000:
        # Standard deviations of the means: 0.5 / sqrt(n) and 0.29 / sqrt(n).
        assert abs(coins.double().mean() - 0.5) < 7 * 0.5 / 100_000**0.5
        assert abs(shares.mean() - 0.5) < 7 * 0.29 / 100_000**0.5
        assert shares.min() >= 0 and shares.max() < 1


DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.complex128, torch.int64, torch.uint8, torch.bool)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_mixed_has_each_element_from_one_of_both(dtype):
    """Bit for bit, wherever the elements lie, NaN among them."""
    draw = torch.Generator().manual_seed(5)
    one, other = (torch.randn((50, 2000), generator=draw).round().to(dtype).t() for _ in range(2))
    if dtype.is_floating_point:
        one[0], other[1] = float("nan"), float("-inf")
    mixed = unpredictable.mixed(one, other)
    assert (mixed.shape, mixed.dtype) == (one.shape, dtype)
    bits, of_one, of_other = (t.contiguous().view(torch.uint8).view(2000, 50, -1) for t in (mixed, one, other))
    from_one, from_other = (bits == of_one).all(2), (bits == of_other).all(2)
    assert (from_one | from_other).all()
    differ = (of_one != of_other).any(2)
    share = from_one[differ].double().mean()
    assert abs(share - 0.5) < 7 * 0.5 / int(differ.sum()) ** 0.5


def case(rows=64):
    """A case of one input, the same at each call."""
    device, model = HostDevice("cpu", MemoryFile()), torch.nn.LayerNorm(1024)
    draw = torch.Generator().manual_seed(1)
    inputs = [torch.randn((rows, 1024), generator=draw) for _ in range(3)]
    sets = [DataSet([x], expect(model, [x], 0)) for x in inputs]
    buffers = [[ref] for ref in device.arena.lay_out([(x, "contiguous") for x in inputs * 3])]
    return prepare_case(device, model, sets, buffers)


def test_the_same_data_get_other_deals_changes_and_samples_each_time():
    """Torch's, NumPy's and Python's generators are where they were, as they would be if a seed could repeat them."""
    deals, positions, values = [], [], []
    for _ in range(3):
        torch.manual_seed(3)
        data = case()
        data.pool.fill()
        contents = data.pool.prepare([0])
        (change,) = contents.changes
        deals += [contents.numbers]
        positions += [change.positions]
        values += [change.values]
    assert not deals[0] == deals[1] == deals[2]  # but for one in 3^18 times
    assert (positions[0] == positions[1]).double().mean() < 0.1
    assert (values[0] == values[1]).double().mean() < 0.5


def test_rounds_of_one_run_have_nothing_in_common():
    data = case()
    data.pool.fill()
    first, second = (data.pool.prepare([0]).changes[0].positions for _ in range(2))
    assert (first == second).double().mean() < 0.1


# ---------------------------------------------------------------------- an attacker's algebra

# Positions of ten bits each that are enough to know all 19,937 bits of a Mersenne Twister's state.
ENOUGH = 5200


@pytest.fixture(scope="module")
def predict(tmp_path_factory):
    """What a Mersenne Twister gives from its number 0 on, by positions that it gave from there; None if it gave none
    such."""
    library = tmp_path_factory.mktemp("solver") / "solver.so"
    source = ROOT / "tests" / "fixtures" / "mersenne_twister.cpp"
    words = [os.environ.get("CXX", "g++"), "-std=c++17", "-O3", "-march=native", "-shared", "-fPIC"]
    subprocess.run([*words, "-o", library, source], check=True)
    solve = ctypes.CDLL(str(library)).predict

    def predicted(positions, count):
        seen, numbers = np.ascontiguousarray(positions[:ENOUGH]), np.empty(count, dtype=np.int64)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (seen, numbers)]
        rank = solve(pointers[0], len(seen), pointers[1], ctypes.c_int64(count))
        return None if rank < 0 else torch.from_numpy(numbers)

    return predicted


def positions_by_torch(generator):
    """Where a thousandth of 5 Mi elements would change in a round if torch's generator chose."""
    shares = torch.rand(ENOUGH + 96, generator=generator)
    return (shares * 1024).long()


def test_changes_by_torchs_generator_would_be_known_before_they_are_made(predict):
    generator = torch.Generator().manual_seed(2**40 + 7)
    torch.rand(777, generator=generator)  # nobody knows how far it is
    seen = positions_by_torch(generator)
    later = [positions_by_torch(generator) for _ in range(3)]
    numbers = predict(seen.numpy(), 4 * len(seen))
    assert numbers is not None
    known = ((numbers & 0xFFFFFF) >> 14).reshape(4, -1)
    assert torch.equal(known, torch.stack([seen, *later]))


def shown_in_a_round():
    """Where elements changed, as a worker sees it: in each row of each buffer one."""
    data = case(rows=640)
    data.pool.fill()
    (change,) = data.pool.prepare([0]).changes
    return (change.positions.reshape(-1) % 1024).numpy()


def by_torchs_generator(below, shape, _device):
    return (torch.rand(tuple(shape)) * below).long()


def test_the_judges_changes_are_no_such_numbers(predict, monkeypatch):
    assert predict(shown_in_a_round(), 1) is None
    monkeypatch.setattr(unpredictable, "integers", by_torchs_generator)
    assert predict(shown_in_a_round(), 1) is not None  # the same attack finds a generator where there is one


# ---------------------------------------------------------------------- free time

CONTROL = ROOT / "tests" / "hostile" / "form" / "control.py"
