"""Where a cluster has room for seats, and whether what judges there can stand in one ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.cluster.wire import About
from harness.errors import HarnessError, UsageError
from harness.store.rows import model_of, versions_of

# What must be the driver's own: judges of two versions give two verdicts.
_SAME = {"judge": "judge", "kernelgate": "kernelgate", "python": "Python"}

# Processors of a build: it has two compilers.
BUILD_CPUS = 2

_TYPE = "accelerator_type:"


def places(
    nodes: Sequence[Mapping[str, Any]], device: str, *, timed: bool, accelerator: str = ""
) -> list[dict[str, Any]]:
    """Ray's options for each seat that these nodes, as `ray.nodes()` gives them, have room for."""
    found = [seat for node in nodes for seat in _seats(node, device, timed, accelerator)]
    return [options | {"accelerator_type": accelerator} for options in found] if accelerator else found


def builders(nodes: Sequence[Mapping[str, Any]], device: str, *, timed: bool, accelerator: str = "") -> int:
    """How many builds at a time the processors have room for that no seat has."""
    count = 0
    for node in nodes:
        taken = sum(seat["num_cpus"] for seat in _seats(node, device, timed, accelerator))
        if node["Alive"]:
            count += (int(node["Resources"].get("CPU", 0)) - taken) // BUILD_CPUS
    return count


def _seats(node: Mapping[str, Any], device: str, timed: bool, accelerator: str) -> list[dict[str, Any]]:
    """What each seat of a node takes of it.

    A seat has a GPU on cuda, and else a processor. Where times are taken on processors it has all of them, so that Ray
    starts nothing beside it, and on a GPU half of its share of them: the others build what it will judge."""
    has = node["Resources"]
    if not node["Alive"] or (accelerator and f"{_TYPE}{accelerator}" not in has):
        return []
    cpus, gpus = int(has.get("CPU", 0)), int(has.get("GPU", 0))
    if device == "cuda":
        share = cpus // max(gpus, 1)
        return [{"num_cpus": share - share // 2 if timed else min(share, 1), "num_gpus": 1}] * gpus
    return [{"num_cpus": cpus, "num_gpus": 0}] * min(cpus, 1) if timed else [{"num_cpus": 1, "num_gpus": 0}] * cpus


def require_some(found: Sequence[object], nodes: Sequence[Mapping[str, Any]], device: str, accelerator: str) -> None:
    """Raises UsageError for an accelerator that no node has, and HarnessError for a cluster without the device."""
    if found:
        return
    if accelerator:
        known = {name.removeprefix(_TYPE) for node in nodes for name in node["Resources"] if name.startswith(_TYPE)}
        raise UsageError(
            f"--accelerator {accelerator}: no node of the cluster has it. Those that Ray knows of there: "
            f"{', '.join(sorted(known)) or 'none'}."
        )
    lacks = "GPU" if device == "cuda" else "processor that Ray may use"
    raise HarnessError(
        f"--device {device} cannot be judged on this cluster: none of its {len(nodes)} nodes has a {lacks}. Start "
        "nodes that have one, with 'ray start --address HOST:PORT'."
    )


def why_unlike(about: About, here: Mapping[str, Any]) -> str:
    """Why what judges on a node is not this process's own judge, as a sentence; empty where it is."""
    for name, called in _SAME.items():
        found, expected = about.environment.get(name), here.get(name)
        if found != expected:
            return (
                f"The node {about.node} has {called} {found}, and this machine {called} {expected}. Install the same "
                "kernelgate in the same Python on both."
            )
    return ""


def why_mixed(about: About, first: About, device: str) -> str:
    """Why times from both cannot stand in one ranking, as a sentence; empty where they can."""
    for of in (model_of, versions_of):
        one, other = of(device, first.environment), of(device, about.environment)
        if one != other:
            choose = "; on GPUs --accelerator TYPE chooses one model" if of is model_of else ""
            return (
                f"Times of two kinds cannot stand in one ranking: {first.node} has {one}, and {about.node} {other}. "
                f"Give --no-timing, or a cluster of one kind{choose}."
            )
    return ""
