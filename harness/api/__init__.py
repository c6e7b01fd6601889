"""Judging from a Python program, which never loads torch: `from harness import Pool, evaluate`."""

from harness.api.pool import Pool, Result, evaluate
from harness.lanes.sources import Source
from harness.lanes.stages import Stage

__all__ = ["Pool", "Result", "Source", "Stage", "evaluate"]
