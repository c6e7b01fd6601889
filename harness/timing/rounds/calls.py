"""How many calls a round has, and how many buffers there are for them."""

from __future__ import annotations

from collections.abc import Mapping

from harness.device.base import Device

# Buffers beyond the calls of a round: a share of the calls, and a minimum. They keep workers from knowing which buffers
# will be run, and how many.
SPARE_SHARE = 0.25
MIN_SPARE_BUFFERS = 2

# The first call of a round may differ from the others, so it must not be the only one.
MIN_CALLS = 2
# As many calls of a few microseconds as fill a round. A round costs 1.1 ms beside its calls, known to 0.1 ms; over 256
# calls of 0.5 us that would be most of what is measured.
MAX_CALLS = 1024

# The least time of a call through Python, even if it does nothing.
SHORTEST_CALL_US = 8.0

# The rounds of a slow contender may be so many times longer than wanted if they then have as many calls as the others',
# or nearly. Rounds of as many calls can share one of the null kernel.
LONGEST_ROUND = 2.5


def choose_calls(call_us: Mapping[str, float], round_us: float, most: int) -> dict[str, int]:
    """Calls a round by contenders' names: as many as fill `round_us`, from MIN_CALLS to `most`. `call_us` holds the
    times of their calls.

    All have the same number if LONGEST_ROUND allows it, so that the cost of a round's first calls has equal weight."""
    chosen = {name: min(most, max(MIN_CALLS, round(round_us / us))) for name, us in call_us.items()}
    largest = max(chosen.values())
    allowed = {name: int(LONGEST_ROUND * round_us / us) for name, us in call_us.items()}
    return {name: max(calls, min(largest, allowed[name])) for name, calls in chosen.items()}


def buffer_count(
    device: Device,
    round_us: float,
    floor_us: float,
    call_bytes: int,
    result_bytes: int,
    workers: int,
    places_bytes: int = 0,
) -> int:
    """Buffers for rounds of `round_us` in a case whose calls take at least `floor_us`, read `call_bytes` and write
    `result_bytes`. Each of `workers` keeps the results of its last round, or graphs of the calls on all buffers, and
    `places_bytes` of parameters."""
    wanted = min(MAX_CALLS, max(MIN_CALLS, int(round_us / max(floor_us, SHORTEST_CALL_US))))
    for_results = max(device.result_bytes // workers - device.worker_bytes - places_bytes, 0)
    buffers = min(device.input_bytes // max(call_bytes, 1), for_results // max(result_bytes, 1))
    return with_spare(max(1, min(wanted, most_calls(buffers))))


def with_spare(calls: int) -> int:
    """How many buffers rounds of so many calls need."""
    return calls + max(MIN_SPARE_BUFFERS, int(calls * SPARE_SHARE))


def most_calls(buffers: int) -> int:
    """The most calls that a round may have with so many buffers; some stay unused."""
    return max(1, min(buffers - MIN_SPARE_BUFFERS, int(buffers / (1 + SPARE_SHARE))))
