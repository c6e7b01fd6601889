#!/usr/bin/env python3
"""How fast a submission is with other values of its constants, all in one run, by the judge's clock.

    python benchmarks/variants.py submissions/layernorm/speed_of_light.py kSlots=20,24 kLoadsUnderWay=2,4 -k headline

Each constant (`NAME = value` in the file, there once) is changed by itself; with --together every combination is a
variant. Constants that only make sense together change in step: kTaken=2,3+kHeldWeights=12,10 is two variants. The file
as it is is the submission, and the variants are what it is timed against. A variant that is not built or not right is
named, and has no time. Prints for each case, called and captured, how long a variant takes over the file as it is:
below 1 it is faster.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import evaluate, of_one_problem, save, the_only_one

# Values by name of the constants that a variant changes.
Changes = dict[str, str]


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("submission", type=Path)
    parser.add_argument("constants", nargs="+", metavar="NAME=VALUE,VALUE[+NAME=VALUE,VALUE]")
    parser.add_argument("--together", action="store_true", help="every combination, and not one change at a time")
    parser.add_argument("--json", type=Path, help="where to keep what was measured")
    return parser


def main() -> None:
    arguments, options = parser().parse_known_args()
    source = arguments.submission.read_text()
    words = [parsed(text) for text in arguments.constants]
    variants = combined(words) if arguments.together else list(itertools.chain.from_iterable(words))
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for changes in variants:
            file = Path(folder) / f"{label(changes)}.py"
            file.write_text(changed(source, changes))
            files[file.stem] = changes
        against = ",".join(str(Path(folder) / f"{name}.py") for name in files)
        options = of_one_problem(arguments.submission, options)
        evaluation = the_only_one(evaluate(arguments.submission, "--against", against, *options))
    cases = {case["name"]: of_case(case, files) for case in evaluation["cases"] if case["timing"]}
    for name, ways in cases.items():
        print(name)
        for way, times in ways.items():
            print(f"  {way}: {times['median_us']:.2f} us as it is")
            for variant, (ratio, low, high) in sorted(times["over"].items(), key=lambda one: one[1]):
                print(f"    {ratio:.4f} [{low:.4f}, {high:.4f}] {variant}")
    print(*evaluation["notes"], sep="\n")
    save(arguments.json, {"submission": evaluation["submission"], "variants": files, "cases": cases})


def parsed(text: str) -> list[Changes]:
    """The variants of one word: NAME=VALUE,VALUE, or several of these that change in step."""
    lists: dict[str, list[str]] = {}
    for constant in re.split(r"\+(?=\w+=)", text):
        name, equals, values = constant.partition("=")
        if not equals or not name.isidentifier() or not all(values.split(",")):
            sys.exit(f"{constant} is no NAME=VALUE,VALUE.")
        lists[name] = values.split(",")
    if len({len(values) for values in lists.values()}) > 1:
        sys.exit(f"The constants of {text} change in step, so each needs as many values as the others.")
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def combined(words: Sequence[Sequence[Changes]]) -> list[Changes]:
    """Every choice of one variant of each word."""
    return [
        {name: value for changes in chosen for name, value in changes.items()} for chosen in itertools.product(*words)
    ]


def label(changes: Changes) -> str:
    """A file's name, which is what reports call a variant."""
    return "_".join(f"{name}_{re.sub(r'[^0-9A-Za-z]+', '_', value)}" for name, value in changes.items())


def changed(source: str, changes: Changes) -> str:
    """The source with other values. Ends this process where a constant is not set once."""
    for name, value in changes.items():
        source, count = re.subn(rf"\b{name} = [^,;\n]+", f"{name} = {value}", source)
        if count != 1:
            sys.exit(f"{name} = … stands {count} times in the submission; it must be set once.")
    return source


def of_case(case: dict[str, Any], variants: dict[str, Changes]) -> dict[str, Any]:
    """By way of calling, the file's own time and how long each variant takes over it."""
    ways = {"called": case["timing"], "captured": case["timing"]["captured"]}
    return {way: of_way(timing, variants) for way, timing in ways.items() if timing}


def of_way(timing: dict[str, Any], variants: dict[str, Changes]) -> dict[str, Any]:
    timed = {name: timing["baselines"][name]["speedup"] for name in variants if name in timing["baselines"]}
    over = {name: [speedup["ratio"], *speedup["interval"]] for name, speedup in timed.items() if speedup}
    return {"median_us": timing["median_us"], "interval_us": timing["interval_us"], "over": over}


if __name__ == "__main__":
    main()
