"""Waiting until the device works for nobody, before a round and after one."""

from __future__ import annotations

from harness.device.base import Device

# How long work that somebody left on the device is waited for, and for how long in all rounds of a case. Where other
# programs use the device all the time, waiting for them gains nothing.
LONGEST_S, IN_ALL_S = 2.0, 20.0


class Idle:
    """Finds out whether a device is idle between rounds, and waits for it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._left_s = IN_ALL_S

    def wait(self) -> bool:
        """Whether the device was idle at once. Otherwise it was waited for."""
        waited_s = self._device.wait_until_idle(min(LONGEST_S, self._left_s))
        self._left_s = max(0.0, self._left_s - waited_s)
        return waited_s == 0.0
