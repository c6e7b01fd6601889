#!/usr/bin/env python3
"""Makes one small fault after another in the judge's own code, and runs the tests that ought to see it.

A fault that no test sees has survived: what it breaks is not tested. Each stands below with the place, the change and
its tests. They are made in a copy of the repository. The list is made by hand: it names faults that would let a wrong
verdict through, where a tool would make thousands that only change a sentence.

    python benchmarks/mutants.py [-k NAME] [--json FILE]

Exits with 1 when one survived, and with 2 when the tests fail without any or a place is gone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from common import ROOT, save

CLOCK = "tests/test_clock_arithmetic.py"
SCHEDULE, PARTS, STATS = "tests/test_schedule.py", "tests/test_parts.py", "tests/test_stats.py"
PROPERTIES = "tests/test_properties.py"
WIRE = "tests/test_wire.py"
ORACLE, IN_ORDER, INPUTS = "tests/test_oracle.py", "tests/test_sums_in_order.py", "tests/test_inputs.py"
SECRETS, TESTIMONY, DOORS = "tests/test_secrets.py", "tests/test_testimony.py", "tests/test_doors.py"
CONDITIONS = "tests/test_conditions.py"
WORKERS = "tests/test_workers.py"

# How long the tests of one fault may take. One that makes them wait for ever is seen.
LIMIT_S = 300.0


@dataclass(frozen=True)
class Mutant:
    """In `file` the text `old`, which stands there once, becomes `new`."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.file}: {self.old.strip()} -> {self.new.strip()}"


def _of(file: str, *tests: str, changes: dict[str, str]) -> list[Mutant]:
    return [Mutant(f"harness/{file}", old, new, tests) for old, new in changes.items()]


MUTANTS = [
    *_of("timing/rounds/contender.py", CLOCK, PARTS, SCHEDULE, changes={
        "(t * 1e6 - fixed_us) / self.calls": "(t * 1e6) / self.calls",
        "float(np.median(self.null_s)) * 1e6": "float(np.min(self.null_s)) * 1e6",
        "min(self.null_s) * 1e6 - doubt_us": "min(self.null_s) * 1e6 + doubt_us",
        "[(t * 1e6 - least_us) / self.calls for t in self.round_s])[1]":
            "[(t * 1e6 - least_us) / self.calls for t in self.round_s])[0]",
        "used.timed - fixed_s": "used.timed",
        "(max(self.null_s) - min(self.null_s)) * 1e6": "0.0",
        "stats.median_interval(self.net_us())[0] <= 0.0": "False",
        "<= half_width": ">= 0",
        "LAUNCH_BOUND_SHARE = 0.9": "LAUNCH_BOUND_SHARE = 0.5",
        "rounds.clear()": "pass",
    }),
    *_of("timing/rounds/inspection.py", CLOCK, changes={
        "if evidence.named.forbidden:": "if False:",
        "check_form(outputs, self._outputs.forms": "check_form(outputs and [], []",
        "if not self._as_expected(": "if False and not self._as_expected(",
        "np.fmax(self._outputs.tolerances[position]": "np.fmax(10 * self._outputs.tolerances[position]",
        "if not comparison.ok:": "if False:",
        "if evidence.full is not None:": "if False:",
        "        if whole is not None:\n            return whole\n": "",
        "& np.isnan(expected))": "| np.isnan(expected))",
        "evidence.seen[position][evidence.compared]": "evidence.seen[position][: len(evidence.compared)]",
    }),
    *_of("timing/rounds/clock.py", CLOCK, changes={
        "        contender.worker.pause()\n        checked": "        checked",
        "        contender.worker.pause()\n        return": "        return",
        "elapsed_s=time.perf_counter() - self.started_s, seen": "seen",
        "if self._pool.written_by_others(checked):": "if False:",
        "if check_all_inputs:": "if False:",
        "len(reply.addresses) != calls or": "",
        "or counts != {len(self._forms)}": "",
    }),
    *_of("timing/rounds/round.py", SCHEDULE, changes={
        "        if played.mapped:\n": "        if True:\n",
        "MAPPING_TRIES = 3": "MAPPING_TRIES = 1",
    }),
    *_of("timing/rounds/null_cost.py", SCHEDULE, changes={
        "played.elapsed_s - played.device_us / 1e6": "played.elapsed_s",
        "min((elapsed_s - self._last_s) * 1e6, LONGEST_NULL_US)": "0.0",
        "longer.elapsed_s < 2 * shorter.elapsed_s": "True",
    }),
    *_of("timing/rounds/schedule.py", SCHEDULE, changes={
        "contender.null_s.append(costs[contender.name].elapsed_s)": "contender.null_s.append(0.0)",
        "contender.round_s.append(played.elapsed_s)": "contender.round_s.append(played.elapsed_s / 2)",
        "self._leave_out_the_unsteady()\n        for": "for",
        "MOST_RESTARTS = 2": "MOST_RESTARTS = 200",
        "or not are_spoiled(self._player.seen())": "or True",
    }),
    *_of("timing/rounds/conditions.py", CONDITIONS, changes={
        "if limit.is_throttling": "if True",
        "or os.getpid() not in pids": "",
        "return pids - self._own": "return pids",
        "bool(throttling(looks) or others(looks))": "bool(throttling(looks))",
    }),
    *_of("timing/rounds/running.py", SCHEDULE, changes={
        "            if contender is self._first:\n                raise\n": "",
        "if contender.trusted and self._player.inputs_were_written():": "if False:",
        "> 1": "> 2",
    }),
    *_of("timing/concluding.py", PARTS, changes={
        "return _at_most_us(device, times.contenders[SUBMISSION]) < least_us": "return False",
        "if eager and _at_most_us(device, eager) < least_us:": "if False:",
        "return SUBMISSION in faster and": "return False and",
        'and "eager" not in faster': "",
        "if own_s > limit_s:": "if False:",
        "float(np.median([each.beside": "float(np.max([each.beside",
        "3 * (null_s + ": "3 * (",
        "ALLOWED_BESIDE_OF_EACH_PROCESSOR_S * len(PROCESSORS)": "ALLOWED_BESIDE_OF_EACH_PROCESSOR_S",
        "if sum(left) > len(left) / 2:": "if any(left):",
        "reach > verdict.KNOWN_WITHIN": "reach > 10 * verdict.KNOWN_WITHIN",
        "    if not device.is_cpu:\n        return []\n": "",
        "    if submission.below_noise():": "    if False:",
        "contender.finished and contender.below_noise()": "False",
    }),
    *_of("timing/timer.py", PARTS, changes={
        "self._bandwidth = self._bandwidth.or_better(self._device.bandwidth())": "pass",
        "            times = self._time_once(part, runners)\n            if": "            if",
        "if not part.shown:": "if True:",
        "times.notes.append(FasterThanMemory(case=part.case, part=part.shown))": "pass",
    }),
    *_of("timing/rounds/idle.py", PARTS, changes={
        "max(0.0, self._left_s - waited_s)": "self._left_s",
        "return waited_s == 0.0": "return True",
    }),
    *_of("verdict.py", PARTS, changes={
        "is not None and not doubted": "is not None",
        "and not self.is_too_noisy": "",
        "max(value - interval[0], interval[1] - value)": "min(value - interval[0], interval[1] - value)",
    }),
    *_of("timing/roofline.py", PROPERTIES, PARTS, changes={
        "max(0, calls * read_bytes - cache_bytes) + ": "",
        "calls * written_bytes - cache_bytes": "calls * written_bytes + cache_bytes",
        "moved_bytes / calls /": "moved_bytes /",
    }),
    *_of("timing/stats.py", STATS, PROPERTIES, CLOCK, changes={
        "tail = (1 - CONFIDENCE) / 2\n    low": "tail = 0.4\n    low",
        "tail = (1 - CONFIDENCE) / 2\n    below": "tail = 0.2\n    below",
        "ordered[outside - 1]": "ordered[outside]",
        "(high - low) / 2 /": "(high - low) / 20 /",
        "if n < MIN_SAMPLES:": "if n < 2:",
        "pairs[:, picks]": "np.stack([pairs[0][picks], pairs[1][picks[::-1]]])",
    }),
    *_of("oracle/comparison.py", PROPERTIES, ORACLE, changes={
        "if error <= expected.tolerance:": "if error <= 2 * expected.tolerance:",
        "(value.isnan() & exact.isnan())": "value.isnan()",
        'nan=float("inf")': "nan=0.0",
        'posinf=float("inf")': "posinf=0.0",
        "if largest > error:": "if False:",
        "(difference <= ulp * exact.abs())": "(difference < 0)",
        "index[dim] += start": "index[dim] += 0",
    }),
    *_of("protocol/extension.py", PROPERTIES, changes={
        "            toolchain_fingerprint,\n": "",
        "            self.extra_cflags,\n": "",
        "            self.extra_cuda_cflags,\n": "",
        "            self.extra_ldflags,\n": "",
        "            self.extra_include_paths,\n": "",
        "            self.functions,\n": "",
        "            [astuple(s) for s in self.cuda_sources],\n": "",
    }),
    *_of("exits.py", PROPERTIES, changes={
        "any(isinstance(evaluation, Rejected)": "all(isinstance(evaluation, Rejected)",
        "any(isinstance(evaluation, Errored)": "all(isinstance(evaluation, Errored)",
    }),
    *_of("settings.py", PROPERTIES, changes={
        "random.SystemRandom().randrange(2**53)": "random.Random(0).randrange(2**53)",
        "(seed, *parts)": "(seed, *parts[:1])",
        "map(str, (seed, *parts))": "map(str, parts)",
    }),
    *_of("protocol/values.py", PROPERTIES, changes={
        'return tuple(items) if kind == "tuple" else items': "return items",
        "{key: decode_value(v) for key, v in content.items()}": "content",
    }),
    *_of("oracle/form.py", ORACLE, changes={
        "if len(outputs) != len(expected):": "if len(outputs) < len(expected):",
        '            ("type", ref.type, _PARAMETER if own else "torch.Tensor"),\n': "",
        '            ("device", ref.device, on),\n': "",
        '            ("dtype", ref.dtype, dtype),\n': "",
        '            ("shape", tuple(ref.shape), form.shape),\n': "",
        "or not same_strides(form.shape, ref.stride, form.stride)": "",
    }),
    *_of("oracle/error_bound.py", ORACLE, changes={
        "            e, form, factor * bound, max": "            e, form, 10 * factor * bound, max",
        "max(_own_eps(form, eps, dtypes) / 2, ROUNDING_EPS * perturbed.kept_eps)": "0.0",
        "perturbed.bounds(exact, count, rounded, constants)": "perturbed.bounds(exact, count, rounded)",
        "moves = [max(move, _finite_max(m, e))": "moves = [max(move, 0.0)",
        "count = min(draws, _draws(inputs, exact))": "count = 1",
    }),
    *_of("oracle/rounded_sums.py", IN_ORDER, INPUTS, changes={
        "LARGE_MEAN = 4.0": "LARGE_MEAN = 1e6",
        "return (mean_of_squares + terms / 3 * mean.square()).sqrt()": "return mean_of_squares.sqrt()",
        "return math.sqrt(terms / 3) * total.abs()": "return total.abs()",
        "        if func in WITH_SUMS:": "        if False:",
        "        if func in _ROUNDED and": "        if False and",
        "(self._eps / 2) * some": "self._eps * 32 * some",
    }),
    *_of("timing/data/unpredictable.py", SECRETS, changes={
        "ssl.RAND_bytes(4 * count)": "bytes(4 * count)",
        "keystream(os.urandom(KEY_BYTES), count, device)": "keystream(bytes(KEY_BYTES), count, device)",
        "* below >> 32": "* below >> 33",
        ".long() & 0xFFFFFFFF": ".long()",
    }),
    *_of("timing/data/keystream.py", SECRETS, changes={
        "? x[i] + start[i] : 0u": "? x[i] : 0u",
        "if found.cpu().numpy().tobytes() != _OF_ZEROS:": "if False:",
        "if count > MOST_WORDS:": "if False:",
    }),
    *_of("protocol/testimony.py", TESTIMONY, changes={
        "if len(self._rest) > MAX_LINE_BYTES:": "if False:",
        "elif not 1 <= marks <= MAX_MARKS:": "elif False:",
        "if told or not (forbidden or findings):": "if True:",
        "        if isinstance(reply, Played):\n            return reply\n": "",
    }),
    *_of("build/doors.py", DOORS, changes={
        "if symbol in _FINDERS or _FINDERS_CLASSES.search(text):": "if False:",
        "if symbol in _GRAPHS:": "if False:",
        "if _VENDORS.match(text) and not allowed:": "if False:",
        'is_one = normalises or any(name in _plain(text.replace(".", "")) for name in also)': "is_one = normalises",
        "for symbol in (*undefined(library), *defined(library)):": "for symbol in undefined(library):",
    }),
    *_of("build/symbols.py", DOORS, changes={
        "count = max(count, (info >> 32) + 1)": "pass",
        "count = max(count, _count_of_gnu_hash(data, _place(segments, tags[_DT_GNU_HASH])))": "pass",
    }),
    *_of("isolation/hold.py", WORKERS, changes={
        "> HELD_PROCESSOR_S}": "> 100.0}",
        "SETTLING_S = 0.02": "SETTLING_S = 0.0",
        "        if extra > 0:": "        if False:",
        "processes.send(self._stopped, signal.SIGCONT)": "pass",
        "started != self._started_before": "False",
    }),
    *_of("protocol/channel.py", WIRE, PROPERTIES, changes={"MAX_MESSAGE_BYTES = ": "MAX_MESSAGE_BYTES = 64 * "}),
]  # fmt: skip


@dataclass(frozen=True)
class Result:
    """What became of a mutant."""

    name: str
    tests: tuple[str, ...]
    what: str
    """'killed', 'survived', or 'no such place' where the text has changed since the mutant was made."""
    seconds: float


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", dest="pattern", default="", metavar="NAME", help="only mutants whose name has this")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what became of each")
    return parser


def main() -> int:
    options = parser().parse_args()
    chosen = [mutant for mutant in MUTANTS if options.pattern in mutant.name]
    _load()
    with tempfile.TemporaryDirectory() as folder:
        copy = _copy(Path(folder))
        if not _pass(copy, tuple(dict.fromkeys(test for mutant in chosen for test in mutant.tests))):
            print("The tests fail without any mutant.", file=sys.stderr)
            return 2
        results = [_try(copy, mutant) for mutant in chosen]
    killed = sum(result.what == "killed" for result in results)
    print(f"{killed} of {len(results)} killed")
    save(options.json, {"mutants": [asdict(result) for result in results]})
    if any(result.what == "no such place" for result in results):
        return 2
    return 0 if killed == len(results) else 1


def _load() -> None:
    """What all tests load, once: each mutant's run is forked from here, and imports only the copy's own modules."""
    import hypothesis  # noqa: F401
    import numpy  # noqa: F401
    import pytest  # noqa: F401
    import scipy.stats  # noqa: F401
    import torch  # noqa: F401


def _copy(folder: Path) -> Path:
    left_out = shutil.ignore_patterns(".*", "results", "__pycache__")
    shutil.copytree(ROOT, folder / "copy", ignore=left_out)
    return folder / "copy"


def _try(copy: Path, mutant: Mutant) -> Result:
    started, path = time.monotonic(), copy / mutant.file
    text = path.read_text()
    what = "no such place"
    if text.count(mutant.old) == 1:
        path.write_text(text.replace(mutant.old, mutant.new))
        what = "survived" if _pass(copy, mutant.tests) else "killed"
        path.write_text(text)
    print(f"{what:14s} {mutant.name}", flush=True)
    return Result(mutant.name, mutant.tests, what, round(time.monotonic() - started, 1))


def _pass(copy: Path, tests: tuple[str, ...]) -> bool:
    """Whether these tests pass in a fork of this process, within LIMIT_S."""
    pid = os.fork()
    if not pid:
        os._exit(_run(copy, tests))
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.05)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return False


def _run(copy: Path, tests: tuple[str, ...]) -> int:
    """The exit code of pytest in the copy; what this process has of the harness is forgotten."""
    import pytest

    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    os.chdir(copy)
    for name in [name for name in sys.modules if name.split(".")[0] in ("harness", "tests")]:
        del sys.modules[name]
    sys.path[:] = [str(copy), *(entry for entry in sys.path if Path(entry).resolve() != ROOT)]
    sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
    sys.dont_write_bytecode = True
    # Without the repository's conftest, which shares the machine: nothing here is timed.
    return int(pytest.main(["-x", "-q", "--noconftest", "-p", "no:cacheprovider", "-p", "no:xdist", "-c", os.devnull,
                            "--rootdir", str(copy), *tests]))  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
