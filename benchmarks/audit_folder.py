#!/usr/bin/env python3
"""Which lazy answers the problems of a folder would accept: `eval.py audit` on each file of KernelBench's level 1.

    python benchmarks/audit_folder.py FOLDER [--batch N] [--memory GIB] [--timeout S] [--json FILE]

Inputs there may be of many GiB. `--batch` audits a copy whose `batch_size = …` is no larger than N, where the file has
such a line; what still needs more than `--memory` or `--timeout` is left out with a sentence. Nothing of the files is
kept but their names. A file of `--json` is written anew after each problem.
"""

import argparse
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
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--memory", type=float, default=1.0, metavar="GIB")
    parser.add_argument("--timeout", type=float, default=30.0, metavar="S")
    parser.add_argument("--json", type=Path, help="where to keep what was found")
    return parser


def with_small_batch(source, batch):
    """The file with a `batch_size` of at most `batch`, and what it was; 0 where there is no such line or no need."""
    found = re.search(r"^batch_size *= *(\d+)", source, re.MULTILINE)
    if not found or int(found[1]) <= batch:
        return source, 0
    return source[: found.start(1)] + str(batch) + source[found.end(1) :], int(found[1])


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
    source, batch_before = with_small_batch(path.read_text(), options.batch)
    copy = Path(folder) / path.name
    copy.write_text(source)
    found = in_a_process(copy, options.memory, options.timeout)
    common = {"problem": path.stem, "batch": options.batch if batch_before else 0, "batch_before": batch_before}
    if isinstance(found, str):
        return {**common, "not_audited": found, "accepted": []}
    left_out = next(iter(found["left_out"].values()), "")
    accepted = [tried["answer"] for tried in found["answers"] if tried["passed"] and not tried["failed"]]
    return {**common, "not_audited": left_out, "accepted": accepted}


def main():
    options = parser().parse_args()
    import harness.evaluate  # noqa: F401  torch, once for all processes

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(options.folder.glob("*.py"), key=lambda p: (len(p.stem.split("_")[0]), p.stem)):
            rows.append(row(path, options, folder))
            save(
                options.json,
                {"seed": SEED, "memory_gib": options.memory, "timeout_s": options.timeout, "problems": rows},
            )
            last = rows[-1]
            print(
                f"{last['problem']:50s} {last['not_audited'] or ', '.join(last['accepted']) or 'none passes'}",
                flush=True,
            )


if __name__ == "__main__":
    main()
