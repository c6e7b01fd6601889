"""What one run was asked for, and the seeds that follow from it."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import Literal

Effort = Literal["quick", "usual", "thorough", "decisive"]

# How people name dtypes, and torch.
DTYPE_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp64": "float64"}
SHORT_DTYPE_NAMES = {name: short for short, name in DTYPE_NAMES.items()}

# All cases of a submission together may take as long as so many calls.
VERDICT_TIMEOUTS = 10


@dataclass(frozen=True)
class Settings:
    """What the command line decides."""

    seed: int
    timeout_s: float = 60.0
    effort: Effort = "usual"
    """How long is timed."""
    one_timed_case: bool = False
    """Whether only the first of the cases that can be timed is."""
    timing: bool = True
    check: bool = False
    first_failure: bool = False
    device_time: bool = False
    show_output: bool = False
    """Whether all that a submission prints is kept."""

    @property
    def verdict_s(self) -> float:
        """How long all cases of a submission may take together, before it is timed: after it no further one is run."""
        return VERDICT_TIMEOUTS * self.timeout_s


def sub_seed(seed: int, *parts: object) -> int:
    """A 63-bit seed for one purpose, from the run's seed: the same everywhere, and none tells another."""
    text = "/".join(map(str, (seed, *parts)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def fresh_seed() -> int:
    """A seed from the system's entropy. A submission sees data that were drawn from it, and must not find it by
    trying all seeds; JSON readers keep integers below 2^53 exact."""
    return random.SystemRandom().randrange(2**53)
