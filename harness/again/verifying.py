"""How a bundle is judged anew: its source, on its problem and its cases, as it was judged."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from harness.again.bundle import Bundle
from harness.again.folder import put
from harness.device.choose import choose_device
from harness.errors import UsageError, one_line
from harness.paths import PROBLEMS
from harness.plan import Arguments, RunPlan, make_plan
from harness.settings import Effort, fresh_seed, sub_seed
from harness.submission import read_submission
from harness.verdict import Errored, digest_of_cases

if TYPE_CHECKING:
    from harness.problem import Problem


@dataclass(frozen=True)
class Verification:
    """What is run to verify a bundle: the same with the bundle's seed and with another."""

    plans: tuple[RunPlan, RunPlan]
    problem_note: str
    """What is to be said of the problem; empty where it is the one in problems/."""


def verification(
    bundle: Bundle, arguments: Arguments, folder: Path, *, trusts_problem: bool, has_gpu: bool
) -> Verification:
    """The plans, with the other settings of `arguments`, whose seed is the second's; texts are written into `folder`.

    Raises UsageError for a claim that says nothing, and for a problem that differs and is not trusted."""
    claim = bundle.evaluation
    if isinstance(claim, Errored):
        raise UsageError("The bundle's result is an error, which says nothing of its submission: there is no claim.")
    if arguments.seed == claim.seed:
        raise UsageError(f"--seed {claim.seed} is the bundle's own, which is judged anyway; give another or none.")
    effort, device = _known_effort(claim.effort), arguments.device or _known_device(claim.device)
    source = put(folder, claim.submission, bundle.source)
    problem, note = _problem(bundle, folder, trusts_problem=trusts_problem)
    if device == "cuda" and not has_gpu and not arguments.device:
        device = choose_device(None, read_submission(source))
    asked = replace(
        arguments,
        paths=(source,),
        problem=str(problem),
        device=device,
        select=_selection_of(bundle, problem),
        effort=effort,
    )
    fresh = fresh_seed() if arguments.seed is None else arguments.seed
    plans = make_plan(replace(asked, seed=claim.seed)), make_plan(replace(asked, seed=fresh))
    return Verification(plans, note)


def _problem(bundle: Bundle, folder: Path, *, trusts_problem: bool) -> tuple[Path, str]:
    """The file of the bundle's problem, and what is to be said of it. The shipped one serves where it is the same.
    Another's is a program that the judge itself runs."""
    name = bundle.evaluation.problem
    shipped = put(folder, name, bundle.problem).name
    here = PROBLEMS / shipped
    digest = hashlib.sha256(bundle.problem).hexdigest()
    if here.is_file() and hashlib.sha256(here.read_bytes()).hexdigest() == digest:
        return here, ""
    differs = f"differs from problems/{shipped}" if here.is_file() else "is none of problems/"
    if not trusts_problem:
        raise UsageError(
            f"The bundle's problem {one_line(differs)}. The judge runs a problem's file itself, without isolation: "
            "read problem.py in the bundle, which is a zip file, and if you trust it say --trust-problem."
        )
    return put(folder, name, bundle.problem), f"The bundle's problem {one_line(differs)}: the bundle's is used."


def _known_device(device: str) -> str:
    if device not in ("cuda", "cpu", "emulator"):
        raise UsageError(f"The bundle's result is of the device '{one_line(device[:40])}', which there is not.")
    return device


def _known_effort(effort: str) -> Effort:
    if effort not in get_args(Effort):
        raise UsageError(f"The bundle's result has the effort '{one_line(effort[:40])}', which there is not.")
    return cast(Effort, effort)


def _selection_of(bundle: Bundle, path: Path) -> str:
    from harness.problem import load_problem

    claim = bundle.evaluation
    wanted = claim.chosen_cases or digest_of_cases(case.name for case in claim.cases)
    problem = load_problem(path, sub_seed(claim.seed, "shapes") % 2**32)
    found = selection(problem, wanted)
    if found is None:
        raise UsageError(f"The bundle's result is of other cases than {one_line(problem.name)} has.")
    return found


def selection(problem: Problem, cases_digest: str) -> str | None:
    """What -k chooses these cases of the problem, all of them for ''; None where nothing does. A result says which
    cases were chosen, and not by which word: any that chooses the same will do."""
    names = [case.name for case in problem.cases]
    parts = {name[i:j].lower() for name in names for i in range(len(name)) for j in range(i + 1, len(name) + 1)}
    for word in ["", *names, *sorted(parts)]:
        if digest_of_cases(case.name for case in problem.matching(word)) == cases_digest:
            return word
    return None
