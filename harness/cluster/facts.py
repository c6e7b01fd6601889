"""`python -m harness.cluster.facts DEVICE ISOLATION` says what is judged with here, as JSON. A process of its own: who
asks never loads torch, nor holds a GPU's context."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec

from harness.build.torch_toolchain import architecture_here
from harness.cluster.programs import finished
from harness.device.choose import usual_device
from harness.errors import HarnessError
from harness.isolation.levels import choose_isolation

# Loading torch takes seconds, a trial of namespaces on a GPU as many.
LIMIT_S = 180.0


def facts(device: str, isolation: str) -> dict[str, Any]:
    """As `_facts`, from a process of its own. Raises HarnessError where that cannot be said."""
    try:
        done = finished("harness.cluster.facts", (device, isolation), LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HarnessError(f"What there is to judge with could not be found out: {error}.") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise HarnessError(said[-1])
    return msgspec.json.decode(done.stdout)


def _facts(device: str, isolation: str) -> dict[str, Any]:
    """Machine and versions, with the isolation of the device and a GPU's architecture. Raises HarnessError where it
    cannot judge on that."""
    from harness.environment import describe

    if device == "cuda" and usual_device() != "cuda":
        raise HarnessError("PyTorch can use no GPU there. Install a build of it with CUDA, and the driver.")
    architecture = architecture_here() if device == "cuda" else ""
    return describe() | {
        "isolation": {device: choose_isolation(isolation, device).describe()},
        "architecture": architecture,
    }


def main() -> int:
    try:
        found = _facts(*sys.argv[1:])
    except HarnessError as error:
        print(error, file=sys.stderr)
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
