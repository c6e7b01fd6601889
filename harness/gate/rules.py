"""The rules of a merge, a function a rule: it gives what is broken of a candidate, and nothing where it holds.

What was not measured breaks no rule that is about figures: a remark says that it was not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from harness.device.choose import can_time
from harness.exits import Exit
from harness.gate.config import Config
from harness.gate.values import Broken, Candidate, Outcome, Remark
from harness.records import KernelResources
from harness.timed import Kind
from harness.verdict import Accepted, CaseFailed, Evaluation, Rejected

HINT = "--compile-for compiles them where nvcc is."

Rule = Callable[[Candidate, Config], Iterator[Broken]]

# Of a compiler's errors and of messages of many lines: a rule that is broken is one line.
SHOWN_CHARACTERS = 300


def verdict(candidate: Candidate, _config: Config) -> Iterator[Broken]:
    """Every evaluation accepts it."""
    for ran in candidate.ran:
        evaluation = ran.evaluation
        if not isinstance(evaluation, Accepted):
            status, code = _status(evaluation)
            found = f"{status} on {evaluation.device}: {evaluation.reason}: {_one_line(evaluation.message)}"
            yield Broken(candidate.file, "verdict", found, "accepted", code, _first_failed(evaluation))


def _status(evaluation: Evaluation) -> tuple[str, Exit]:
    return ("rejected", Exit.REJECTED) if isinstance(evaluation, Rejected) else ("error", Exit.HARNESS)


def _first_failed(evaluation: Evaluation) -> str:
    failed = [case for case in evaluation.cases if isinstance(case, CaseFailed)]
    return next((case.name for case in failed if case.reason == evaluation.reason), "")


def devices(candidate: Candidate, config: Config) -> Iterator[Broken]:
    """Each device that was asked for and can run it, or that was chosen, gave a verdict."""
    for without in candidate.without:
        yield Broken(candidate.file, "devices", f"no verdict: {_one_line(without.why)}", without.device, Exit.HARNESS)
    said = {ran.evaluation.device for ran in candidate.ran} | {without.device for without in candidate.without}
    for device in config.devices:
        if device not in said and device not in candidate.cannot:
            yield Broken(candidate.file, "devices", "no verdict", device, Exit.HARNESS)


def require_check(candidate: Candidate, config: Config) -> Iterator[Broken]:
    """The emulator's detectors watched what they can watch."""
    said = any(ran.checked for ran in candidate.ran) or any(w.device == "emulator" for w in candidate.without)
    if config.require_check and candidate.needs_check and not said:
        yield Broken(candidate.file, "require-check", "no detectors watched", "the emulator's detectors", Exit.HARNESS)


def min_speedup(candidate: Candidate, config: Config) -> Iterator[Broken]:
    """The whole interval of the speedup over eager reaches it."""
    if config.min_speedup is None:
        return
    asked = f"{config.min_speedup:g}×"
    for evaluation in _accepted(candidate):
        speedup = evaluation.geomean_speedup
        if not can_time(evaluation.device):
            continue
        if speedup is None:
            why = evaluation.not_timed or "eager was not timed on every timed case"
            yield Broken(candidate.file, "min-speedup", f"unknown on {evaluation.device}: {why}", asked, Exit.HARNESS)
            continue
        low, high = evaluation.geomean_interval or (speedup, speedup)
        if low < config.min_speedup:
            found = f"{speedup:.2f}× [{low:.2f}, {high:.2f}] on {evaluation.device}"
            yield Broken(candidate.file, "min-speedup", found, asked, Exit.TOO_SLOW)


def no_slower_than_best(candidate: Candidate, config: Config) -> Iterator[Broken]:
    """No case is slower than the stored best that ran beside it."""
    if config.no_slower_than_best == "off":
        return
    for slower in candidate.slower:
        share, (low, high) = 1 / slower.speed.ratio - 1, (1 / bound - 1 for bound in slower.speed.interval[::-1])
        captured = f", {slower.kind}" if slower.kind is Kind.CAPTURED else ""
        found = f"'{slower.case}'{captured} is {share:.1%} slower [{low:.1%}, {high:.1%}] than {candidate.best}"
        limit = f"{slower.noise:.1%}, the case's own noise"
        yield Broken(candidate.file, "no-slower-than-best", found, limit, Exit.TOO_SLOW, slower.case)


def compiles(candidate: Candidate, _config: Config) -> Iterator[Broken]:
    """Every architecture's compiler takes its kernels."""
    for compiled in candidate.compiled:
        if compiled.error:
            found = f"refused: {_one_line(compiled.error)}"
            yield Broken(candidate.file, "compile-for", found, compiled.architecture, Exit.REJECTED)


def max_spills(candidate: Candidate, config: Config) -> Iterator[Broken]:
    """No thread of a kernel spills more bytes."""
    if (limit := config.max_spills) is not None:
        for place, kernel in kernels_of(candidate):
            if kernel.spilled_bytes > limit:
                found = f"{kernel.kernel} spills {kernel.spilled_bytes} bytes on {place}"
                yield Broken(candidate.file, "max-spills", _one_line(found), f"{limit} bytes", Exit.REJECTED)


def max_registers(candidate: Candidate, config: Config) -> Iterator[Broken]:
    """No thread of a kernel needs more registers."""
    if (limit := config.max_registers) is not None:
        for place, kernel in kernels_of(candidate):
            if kernel.registers > limit:
                found = f"{kernel.kernel} needs {kernel.registers} on {place}"
                yield Broken(candidate.file, "max-registers", _one_line(found), str(limit), Exit.REJECTED)


RULES: tuple[Rule, ...] = (
    verdict, devices, require_check, compiles, max_spills, max_registers, min_speedup, no_slower_than_best,
)  # fmt: skip


def decide(candidates: Sequence[Candidate], config: Config, remarks: Sequence[Remark] = ()) -> Outcome:
    """All that is broken, file by file. A gate that looked at nothing is no open gate."""
    broken = [found for candidate in candidates for rule in RULES for found in rule(candidate, config)]
    if not broken and not any(candidate.ran for candidate in candidates):
        broken.append(Broken("eval.py gate", "results", "nothing was judged", "a verdict at least", Exit.NOTHING))
    unlooked = [remark for candidate in candidates for remark in _not_looked_at(candidate, config)]
    return Outcome(tuple(candidates), tuple(broken), (*remarks, *unlooked))


def kernels_of(candidate: Candidate) -> Iterator[tuple[str, KernelResources]]:
    """Every compiler's report, with the device or architecture that it is of."""
    for ran in candidate.ran:
        for kernel in ran.evaluation.build.kernels if ran.evaluation.build else ():
            yield ran.evaluation.device, kernel
    for compiled in candidate.compiled:
        for kernel in compiled.kernels:
            yield compiled.architecture, kernel


def _not_looked_at(candidate: Candidate, config: Config) -> Iterator[Remark]:
    """Rules about figures that are not there."""
    accepted = list(_accepted(candidate))
    if not accepted:
        return
    of_kernels = {"max-spills": config.max_spills, "max-registers": config.max_registers}
    asked = [rule for rule, limit in of_kernels.items() if limit is not None]
    if asked and candidate.needs_check and not any(kernels_of(candidate)):
        yield Remark(candidate.file, f"{' and '.join(asked)} left out: its kernels were compiled for no GPU. {HINT}")
    if config.min_speedup is not None and not any(can_time(evaluation.device) for evaluation in accepted):
        yield Remark(candidate.file, "min-speedup left out: the emulator gives verdicts, never times.")


def _accepted(candidate: Candidate) -> Iterator[Accepted]:
    return (ran.evaluation for ran in candidate.ran if isinstance(ran.evaluation, Accepted))


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}…"
