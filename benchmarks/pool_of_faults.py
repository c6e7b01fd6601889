#!/usr/bin/env python3
"""Whether a pool gives every result whatever its sources do, and whatever becomes of the processes that judge.

    python benchmarks/pool_of_faults.py [--count N] [--workers W] [--limit S] [--kill-each S] [--seed N] [--json FILE]

Judges N small LayerNorm sources on the CPU, drawn at random: right and wrong ones, some that crash, exit or hang, and
some that are no Python. Meanwhile a process that judges is killed from outside each S seconds, which may cost the one
source that it judges. Prints how many results are what they must be, the sources a second, and the memory of the
largest judging process in each tenth of the run. Ends with exit code 1 when a result is missing or is another.
"""

import argparse
import asyncio
import collections
import contextlib
import random
import sys
import threading
import time
from pathlib import Path

import psutil
from common import ROOT, save

from harness import Pool, Result

PROBLEM = ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py"
RIGHT = (ROOT / "tests" / "hostile" / "form" / "control.py").read_text()
CALL = "        y = (x"

# Each kind's source, what its result must be, and how often it comes.
KINDS = {
    "right": (RIGHT, ("accepted", None), 40),
    "wrong": (RIGHT.replace("+ self.bias", "+ self.bias + x"), ("rejected", "wrong_output"), 20),
    "crashes": (
        RIGHT.replace(CALL, f"        import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n{CALL}"),
        ("rejected", "crashed"),
        14,
    ),
    "exits": (RIGHT.replace(CALL, f"        import os; os._exit(0)\n{CALL}"), ("rejected", "exited"), 8),
    "hangs": (RIGHT.replace(CALL, f"        while True: pass\n{CALL}"), ("error", "not_judged"), 3),
    "no Python": ("def (", ("rejected", "load_failed"), 15),
}
KILLED = "ended by SIGKILL"


def parser():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=5.0)
    parser.add_argument("--kill-each", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to keep what was measured")
    return parser


def lanes():
    """The processes that judge; of one that has ended nothing can be read."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "harness.lanes.judging" in child.cmdline():
                found.append(child)
    return found


def kill_some(each_s, draw, over, killed):
    """Kill one of the processes that judge now and then, until it is over."""
    while not over.wait(each_s):
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            one = draw.choice(lanes())
            one.kill()
            killed.append(one.pid)


def memory_mib():
    """Of the largest process that judges."""
    found = [0]
    for lane in lanes():
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(lane.memory_info().rss >> 20)
    return max(found)


async def judged(pool, kinds, limit_s):
    """The results by their index, and the memory in each tenth of the run."""
    results: dict[int, Result] = {}
    memory: dict[int, int] = collections.defaultdict(int)
    async for result in pool.evaluate((KINDS[kind][0] for kind in kinds), limit_s=limit_s):
        assert result.index not in results
        results[result.index] = result
        tenth = 10 * (len(results) - 1) // len(kinds)
        memory[tenth] = max(memory[tenth], memory_mib())
    return results, [memory[tenth] for tenth in range(10)]


def main():
    arguments = parser().parse_args()
    draw = random.Random(arguments.seed)
    kinds = draw.choices([*KINDS], [weight for *_, weight in KINDS.values()], k=arguments.count)
    killed: list[int] = []
    over = threading.Event()
    killing = threading.Thread(target=kill_some, args=(arguments.kill_each, draw, over, killed))
    began_s = time.perf_counter()
    with Pool(arguments.workers, problem=str(PROBLEM), device="cpu", timing=False) as pool:
        killing.start()
        try:
            results, memory = asyncio.run(judged(pool, kinds, arguments.limit))
        finally:
            over.set()
            killing.join()
    seconds = time.perf_counter() - began_s
    outcomes: collections.Counter[str] = collections.Counter()
    for index, kind in enumerate(kinds):
        result = results.get(index)
        found = (result.status, result.evaluation.reason) if result else ("missing", None)
        lost = bool(result) and KILLED in result.evaluation.message
        outcomes[
            "lost with a killed process" if lost else "right" if found == KINDS[kind][1] else f"{kind}: {found}"
        ] += 1
    measured = {
        "count": arguments.count, "workers": arguments.workers, "limit_s": arguments.limit, "kinds":
        collections.Counter(kinds), "killed": len(killed), "outcomes": outcomes, "seconds": seconds,
        "memory_mib_of_tenths": memory,
    }  # fmt: skip
    save(arguments.json, measured)
    print(
        f"{arguments.count} sources in {seconds:.0f} s, {arguments.count / seconds:.1f} a second; {len(killed)} kills"
    )
    print(", ".join(f"{count} {what}" for what, count in outcomes.items()))
    print(f"memory of a judging process in each tenth of the run: {', '.join(map(str, memory))} MiB")
    others = set(outcomes) - {"right", "lost with a killed process"}
    return 1 if others or outcomes["lost with a killed process"] > len(killed) else 0


if __name__ == "__main__":
    sys.exit(main())
