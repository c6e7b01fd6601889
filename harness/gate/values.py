"""What the gate looks at and what it says: frozen values, which rules make and reports see."""

from __future__ import annotations

from dataclasses import dataclass

from harness.exits import Exit
from harness.records import KernelResources
from harness.timed import Kind
from harness.verdict import Evaluation, Speedup


@dataclass(frozen=True)
class Broken:
    """A rule that does not hold of a file: what was found, and what is asked for."""

    file: str
    rule: str
    value: str
    limit: str
    exit: Exit
    """What the run ends with for this alone."""
    case: str = ""
    """The case that it is about, if it is about one."""

    @property
    def line(self) -> str:
        return f"{self.file}: {self.rule}: {self.value.rstrip('.')}; asked for: {self.limit}"


@dataclass(frozen=True)
class Remark:
    """What the gate did not look at or does not hold against a file, and why."""

    file: str
    text: str

    @property
    def line(self) -> str:
        return f"{self.file}: {self.text}" if self.file else self.text


@dataclass(frozen=True)
class Ran:
    """An evaluation, and whether the emulator's detectors watched it."""

    evaluation: Evaluation
    checked: bool = False


@dataclass(frozen=True)
class NoVerdict:
    """A device on which a submission was to be judged, and why it was not: a sentence."""

    device: str
    why: str


@dataclass(frozen=True)
class Compiled:
    """What the compiler said of a submission's kernels for one architecture; `error` where it refused them."""

    architecture: str
    kernels: tuple[KernelResources, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Slower:
    """A case that takes longer than the stored best, which ran beside it."""

    case: str
    kind: Kind
    speed: Speedup
    """The submission's over the best's: below 1, with the 95% interval of paired rounds."""
    noise: float
    """A share: so much may the same code differ in this run."""


@dataclass(frozen=True)
class Candidate:
    """A submission to one problem, and all that is known of it."""

    file: str
    problem: str
    needs_check: bool
    """It has kernels that the emulator's detectors can watch."""
    ran: tuple[Ran, ...] = ()
    without: tuple[NoVerdict, ...] = ()
    cannot: tuple[str, ...] = ()
    """Devices that it can never run on: it is host code, has CUDA kernels, or some that a GPU alone runs."""
    compiled: tuple[Compiled, ...] = ()
    slower: tuple[Slower, ...] = ()
    """What the first run suspected and the decisive one has shown."""
    best: str = ""
    """What it was compared with, in words."""


@dataclass(frozen=True)
class Outcome:
    """What the gate says of all of them."""

    candidates: tuple[Candidate, ...]
    broken: tuple[Broken, ...] = ()
    remarks: tuple[Remark, ...] = ()

    @property
    def judged(self) -> int:
        return sum(bool(candidate.ran) for candidate in self.candidates)

    @property
    def exit(self) -> Exit:
        """The worst of what is broken, in the order in which eval.py's own codes go."""
        found = {broken.exit for broken in self.broken}
        order = (Exit.REJECTED, Exit.HARNESS, Exit.TOO_SLOW, Exit.NOTHING)
        return next((code for code in order if code in found), Exit.ACCEPTED)

    @property
    def passed(self) -> bool:
        return not self.broken
