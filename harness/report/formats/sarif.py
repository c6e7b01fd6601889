"""SARIF 2.1.0, which GitHub's code scanning and editors show: what is wrong, at the lines of the submission's file.

The format is https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html. A rule is a reason of the judge's or a
rule of a gate; a rejection is an error, what says nothing about a submission a warning. What a gate left out is a
notification of the run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from harness.gate.values import Broken
from harness.reasons import Reason
from harness.report.encoding import encoded
from harness.report.places import Failure, failures_of
from harness.report.view import View
from harness.verdict import Results

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
VERSION = "2.1.0"

# The rule whose findings stand with their reasons.
_VERDICT = "verdict"


def render(results: Results, view: View) -> str:
    """One run; without results where nothing is wrong."""
    found = [_result(failure) for evaluation in results.evaluations for failure in failures_of(evaluation, view)]
    found += [_broken(broken, view) for broken in view.gate.broken if broken.rule != _VERDICT] if view.gate else []
    driver = {
        "name": "kernelgate",
        "version": str(results.environment.get("judge") or "unknown"),
        "rules": [_rule(name) for name in dict.fromkeys(result["ruleId"] for result in found)],
    }
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "invocations": [_invocation(view)],
           "results": found}  # fmt: skip
    return encoded({"$schema": SCHEMA, "version": VERSION, "runs": [run]})


def _rule(name: str) -> dict[str, Any]:
    known = {str(reason): reason.meaning for reason in Reason}
    text = known.get(name, f"A rule of the gate does not hold: {name.removeprefix('gate/')}.")
    return {"id": name, "shortDescription": {"text": text}}


def _result(failure: Failure) -> dict[str, Any]:
    evaluation = failure.evaluation
    of = f"{evaluation.submission} on {evaluation.problem}, {evaluation.device}"
    return {
        "ruleId": str(failure.reason),
        "level": "error" if failure.rejects else "warning",
        "message": {"text": f"{of}: {failure.words}"},
        "locations": [_location(failure.file, failure.line)],
        "partialFingerprints": {"kernelgate/v1": _fingerprint(failure)},
    }


def _fingerprint(failure: Failure) -> str:
    """The same for the same fault of the next run: lines move, and messages hold figures."""
    evaluation = failure.evaluation
    parts = (failure.file, str(failure.reason), evaluation.problem, evaluation.device, *failure.cases[:1])
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:32]


def _broken(broken: Broken, view: View) -> dict[str, Any]:
    """A rule about a whole file stands at its beginning; one about no file nowhere."""
    places = [_location(broken.file, 1)] if broken.file in view.files.values() else []
    return {
        "ruleId": f"gate/{broken.rule}",
        "level": "error",
        "message": {"text": broken.line},
        **({"locations": places} if places else {}),
    }


def _location(file: str, line: int) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": _artifact(file), "region": {"startLine": line}}}


def _artifact(file: str) -> dict[str, str]:
    """A path from the checkout's root, or the whole of it; in either case as the URI that the format asks for."""
    if PurePath(file).is_absolute():
        return {"uri": PurePath(file).as_uri()}
    return {"uri": quote(file), "uriBaseId": "%SRCROOT%"}


def _invocation(view: View) -> dict[str, Any]:
    remarks = [{"level": "note", "message": {"text": text}} for text in _remarks(view)]
    return {"executionSuccessful": True, **({"toolExecutionNotifications": remarks} if remarks else {})}


def _remarks(view: View) -> Iterator[str]:
    return (remark.line for remark in view.gate.remarks) if view.gate else iter(())
