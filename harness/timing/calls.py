"""How many calls a round has, and how many buffers are made ready for them."""

from __future__ import annotations

from collections.abc import Mapping

from harness.device.base import Device

# Buffers beyond the calls of a round, as a share of them and at least: which are run, and how many, is not known.
SPARE_SHARE = 0.25
MIN_SPARE_BUFFERS = 2

# What differs about the first call of a round must not be all that there is.
MIN_CALLS = 2
MAX_CALLS = 256

# A call through Python takes at least so long, however little it does.
SHORTEST_CALL_US = 8.0

# A slow contender's rounds may be this many times longer than wanted, to have as many calls as the others'.
LONGEST_ROUND = 2


def choose_calls(call_us: Mapping[str, float], round_us: float, most: int) -> dict[str, int]:
    """For contenders' times of a call: as many calls a round, `most` at the most, as fill `round_us`.

    They have the same number where their rounds allow it, so that what the first calls of a round cost weighs alike on
    all."""
    chosen = {name: min(most, max(MIN_CALLS, round(round_us / us))) for name, us in call_us.items()}
    largest = max(chosen.values())
    allowed = {name: int(LONGEST_ROUND * round_us / us) for name, us in call_us.items()}
    return {name: max(calls, min(largest, allowed[name])) for name, calls in chosen.items()}


def buffer_count(
    device: Device, round_us: float, floor_us: float, call_bytes: int, result_bytes: int, workers: int
) -> int:
    """Buffers for rounds of `round_us` in a case whose calls take at least `floor_us`, read `call_bytes` and write
    `result_bytes`; each of `workers` keeps what its last round gave."""
    wanted = min(MAX_CALLS, max(MIN_CALLS, int(round_us / max(floor_us, SHORTEST_CALL_US))))
    buffers = device.input_bytes // max(call_bytes, 1)
    room = min(most_calls(buffers), device.result_bytes // (workers * max(result_bytes, 1)))
    return with_spare(max(1, min(wanted, room)))


def with_spare(calls: int) -> int:
    """How many buffers are made ready for so many calls."""
    return calls + max(MIN_SPARE_BUFFERS, int(calls * SPARE_SHARE))


def most_calls(buffers: int) -> int:
    """The most calls that a round may have with so many buffers: some stay unused."""
    return max(1, min(buffers - MIN_SPARE_BUFFERS, int(buffers / (1 + SPARE_SHARE))))
