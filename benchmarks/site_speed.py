#!/usr/bin/env python3
"""How long a site of 1,000 results takes, and how large its largest page is.

    python benchmarks/site_speed.py [--evaluations N] [--results FOLDER]

The evaluations are copies of those of results/h200, each of a source of its own: one of the shipped files with a line
behind it. So every page is made from the beginning; that of a source with many evaluations would be made once.
"""

import argparse
import hashlib
import itertools
import os
import tempfile
import time
from pathlib import Path

import msgspec
from common import ROOT

from harness.errors import UsageError
from harness.report.formats import json
from harness.report.site.build import build_site
from harness.store import open_store

LIMIT_S, LIMIT_KB = 10, 300


def parser():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--evaluations", type=int, default=1000, metavar="N")
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "h200")
    return parser


def measured(folder):
    """Evaluations and their environments, of all results in the folder."""
    for path in sorted(folder.glob("*.json")):
        try:
            results = json.load(path)
        except UsageError:  # it holds something else
            continue
        yield from ((evaluation, results.environment) for evaluation in results.evaluations)


def fill(store, found, count):
    """`count` evaluations in turn, each with a source of its own."""
    for number, (evaluation, environment) in zip(range(count), itertools.cycle(found), strict=False):
        file = ROOT / "submissions" / evaluation.problem / f"{evaluation.submission}.py"
        shipped = file if file.exists() else ROOT / "submissions" / "layernorm" / "speed_of_light.py"
        text = shipped.read_bytes() + f"# {number}\n".encode()
        sha256 = hashlib.sha256(text).hexdigest()
        copy = msgspec.structs.replace(evaluation, source_sha256=sha256, submission=f"{evaluation.submission}_{number}")
        store.add([copy], environment, {sha256: text})


def processor_s():
    """Of this process and of those that it started and that ended."""
    return sum(os.times()[:4])


def main():
    options = parser().parse_args()
    with tempfile.TemporaryDirectory() as folder:
        db, out = Path(folder) / "results.db", Path(folder) / "site"
        with open_store(db) as store:
            fill(store, list(measured(options.results)), options.evaluations)
        begun, used_s = time.perf_counter(), processor_s()
        built = build_site(db, out)
        took_s, used_s = time.perf_counter() - begun, processor_s() - used_s
        pages = {path: path.stat().st_size for path in out.rglob("*.html")}
        largest = max(pages, key=pages.__getitem__)
        whole_mb = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
        print(f"{options.evaluations:,} results: {built.pages:,} pages in {took_s:.1f} s (under {LIMIT_S} s)")
        print(f"processor time: {used_s:.1f} s, of {len(os.sched_getaffinity(0))} processors, which others may use")
        print(f"the whole site: {whole_mb:.0f} MB")
        print(f"the largest page, {largest.relative_to(out)}: {pages[largest] / 1e3:.0f} kB (under {LIMIT_KB} kB)")


if __name__ == "__main__":
    main()
