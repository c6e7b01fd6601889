"""What machine and which versions a result was made with."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from harness.device import nvml
from harness.paths import cache_root, results_db
from harness.storage import cache
from harness.version import judge_version


@functools.cache
def describe() -> dict[str, Any]:
    """Facts that decide a result, without anything personal: no host name, no user, no path but the cache's."""
    return {
        "kernelgate": version_of("kernelgate"),
        "judge": judge_version(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torch_cuda": torch.version.cuda,
        "numpy": version_of("numpy"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "processor": _processor(),
        "compiler": _first_line("c++", "--version"),
        "nvcc": _last_line("nvcc", "--version"),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "nvml": version_of("nvidia-ml-py"),
        "driver": _first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
    } | _unwatched()


def _unwatched() -> dict[str, str]:
    """Why nobody sees in which state the GPU is while it is timed; nothing where it is seen, or where there is none."""
    why = nvml.why_unwatched(torch.cuda.current_device()) if torch.cuda.is_available() else None
    return {"unwatched": f"The GPU's clocks, heat and other processes were not seen. {why}"} if why else {}


def for_people() -> dict[str, Any]:
    """As `describe`, with what helps to set a machine up. Raises HarnessError for a limit that is none."""
    kept = {"cache_gib": cache.size_bytes() / 2**30, "cache_limit_gib": cache.limit_bytes() / 2**30}
    places = {"database": str(results_db()), "cache": str(cache_root())}
    return describe() | places | {name: round(gib, 3) for name, gib in kept.items()}


def version_of(package: str) -> str | None:
    try:
        return version(package)
    except Exception:
        return None  # run from a checkout that was not installed


def _processor() -> str | None:
    """The processor's name, as Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def _lines(*command: str) -> list[str]:
    if not shutil.which(command[0]):
        return []
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip().splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return []


def _first_line(*command: str) -> str | None:
    return next(iter(_lines(*command)), None)


def _last_line(*command: str) -> str | None:
    lines = _lines(*command)
    return lines[-1] if lines else None
