#!/usr/bin/env python3
"""Which lazy answers the problems of a folder would accept: `eval.py audit` on each file of KernelBench's level 1.

    python benchmarks/audit_folder.py FOLDER [--largest N] [--memory GIB] [--timeout S] [--json FILE]

Inputs there may be of many GiB. Audited is a copy in which no whole number that the file sets at its top level is above
`--largest`; what still needs more than `--memory` or `--timeout` is left out with a sentence. Nothing of the files is
kept but their names and those of the numbers. A file of `--json` is written anew after each problem.
"""

import argparse
import ast
import math
import multiprocessing
import re
import tempfile
from pathlib import Path

import msgspec
from common import save

from harness.errors import UsageError

SEED = 1


def parser():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--largest", type=int, default=64)
    parser.add_argument("--memory", type=float, default=1.0, metavar="GIB")
    parser.add_argument("--timeout", type=float, default=30.0, metavar="S")
    parser.add_argument("--json", type=Path, help="where to keep what was found")
    return parser


def with_small_sizes(source, largest):
    """The file with no number above `largest` among those that it sets at its top level, and the names that changed."""
    lines, changed = source.splitlines(keepends=True), []
    for node in ast.parse(source).body:
        if (
            not isinstance(node, ast.Assign)
            or not isinstance(node.targets[0], ast.Name)
            or node.lineno != node.end_lineno
        ):
            continue
        found = re.fullmatch(r"[\d\s*]+", ast.get_source_segment(source, node.value) or "")
        if found and math.prod(map(int, found[0].split("*"))) > largest:
            lines[node.lineno - 1] = f"{node.targets[0].id} = {largest}\n"
            changed.append(node.targets[0].id)
    return "".join(lines), changed


def audited(path, memory_gib, sender):
    """Send what the audit says, or a sentence."""
    from harness.problem import load_problem
    from harness.verbs.audit import audit

    try:
        problem = load_problem(path, SEED)
        found = audit(problem, list(problem.cases), SEED, int(memory_gib * 2**30))
        sender.send(msgspec.to_builtins(found))
    except (UsageError, RuntimeError, MemoryError) as error:
        sender.send(f"it cannot be run: {str(error).splitlines()[0].replace(str(path), path.name)}")


def in_a_process(path, memory_gib, timeout_s):
    """As `audited`, ended after `timeout_s` seconds."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=audited, args=(path, memory_gib, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(timeout_s) else f"took more than {timeout_s:g} s"
    except EOFError:
        return "the process ended; it may have needed more memory than there is"
    finally:
        process.kill()
        process.join()


def row(path, options, folder):
    """What is kept of one problem."""
    source, changed = with_small_sizes(path.read_text(), options.largest)
    copy = Path(folder) / path.name
    copy.write_text(source)
    found = in_a_process(copy, options.memory, options.timeout)
    common = {"problem": path.stem, "lowered": changed}
    if isinstance(found, str):
        return {**common, "not_audited": found, "accepted": []}
    left_out = next(iter(found["left_out"].values()), "")
    accepted = [tried["answer"] for tried in found["answers"] if tried["passed"] and not tried["failed"]]
    return {**common, "not_audited": left_out, "accepted": accepted}


def main():
    options = parser().parse_args()
    import harness.judge  # noqa: F401  torch, once for all processes

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(options.folder.glob("*.py"), key=lambda p: (len(p.stem.split("_")[0]), p.stem)):
            rows.append(row(path, options, folder))
            save(
                options.json,
                {
                    "seed": SEED,
                    "largest": options.largest,
                    "memory_gib": options.memory,
                    "timeout_s": options.timeout,
                    "problems": rows,
                },
            )
            last = rows[-1]
            print(
                f"{last['problem']:50s} {last['not_audited'] or ', '.join(last['accepted']) or 'none passes'}",
                flush=True,
            )


if __name__ == "__main__":
    main()
