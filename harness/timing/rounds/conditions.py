"""In which state the device was before and after each round, and whether such rounds may count."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from harness.device.base import Device
from harness.device.nvml import Seen
from harness.isolation import processes
from harness.records import ClockLimit
from harness.verdict import Conditions

Looks = Sequence[Seen]
"""What was seen around one set of rounds; `processes` are those alone that are not the judge's."""

_T = TypeVar("_T")


class Lookout:
    """Looks at a device between rounds, and tells the judge's processes from others."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._own: set[int] = set()
        self.looks: list[Seen] = []

    def start(self) -> None:
        """Forget what was seen, and look."""
        self.looks = []
        self.look()

    def look(self) -> None:
        """A look after a round is the one before the next."""
        seen = self._device.look()
        if seen:
            self.looks.append(replace(seen, processes=self._others(seen.processes)))

    def _others(self, pids: frozenset[int] | None) -> frozenset[int] | None:
        """Those of `pids` that are neither the judge nor what it started. None where the judge, which uses the device
        itself, is not among them: numbers of another system say nothing here."""
        if pids is None or os.getpid() not in pids:
            return None
        if not pids <= self._own:
            self._own |= set(processes.family(os.getpid()))
        return pids - self._own


def throttling(looks: Looks) -> set[ClockLimit]:
    """What slowed the device down that should not."""
    return {limit for limit in _union(look.clock_limits for look in looks) or () if limit.is_throttling}


def others(looks: Looks) -> set[int] | None:
    """Other processes that used the device; None where nobody tells."""
    return _union(look.processes for look in looks)


def are_spoiled(looks: Looks) -> bool:
    """Whether rounds under such conditions say nothing of a kernel."""
    return bool(throttling(looks) or others(looks))


def summary(kept: Sequence[Looks], discarded: Sequence[Looks]) -> Conditions | None:
    """What reports show of sets of rounds, those that count and those that do not; None where nobody looked."""
    looks = [look for of_set in kept for look in of_set]
    if not looks:
        return None
    in_vain = [look for of_set in discarded for look in of_set]
    limits, beside = _union(look.clock_limits for look in looks), others(looks)
    return Conditions(
        sm_mhz=_range(look.sm_mhz for look in looks),
        memory_mhz=_range(look.memory_mhz for look in looks),
        temperature_c=max(_known(look.temperature_c for look in looks), default=None),
        power_w=max(_known(look.power_w for look in looks), default=None),
        power_limit_w=looks[0].power_limit_w,
        clock_limits=None if limits is None else sorted(limits),
        other_processes=None if beside is None else sorted(beside),
        sm_mhz_of_rounds=[min(_known(look.sm_mhz for look in of_set), default=None) for of_set in kept],
        discarded=len(discarded),
        discarded_throttled=sorted(throttling(in_vain)),
        discarded_beside=sorted(others(in_vain) or ()),
    )


def _known(values: Iterable[_T | None]) -> list[_T]:
    return [value for value in values if value is not None]


def _union(sets: Iterable[frozenset[_T] | None]) -> set[_T] | None:
    """None where no set is known."""
    known = _known(sets)
    return set().union(*known) if known else None


def _range(values: Iterable[int | None]) -> tuple[int, int] | None:
    known = _known(values)
    return (min(known), max(known)) if known else None
