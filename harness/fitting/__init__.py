"""Whether a case fits into memory, found out before anything of it is drawn, and what is done where it does not."""

from harness.fitting.fit import Fitted, fit, room_on

__all__ = ["Fitted", "fit", "room_on"]
