"""Submissions of one name, told apart by their folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath

import msgspec

from harness.verdict import Evaluation


def told_apart(evaluations: Sequence[Evaluation], files: Mapping[tuple[str, str], str]) -> list[Evaluation]:
    """The evaluations; where files of several texts have one name, it has as many of their folders before it as tell
    them apart. `files` has paths by name and SHA-256."""
    sources: dict[str, set[str]] = {}
    for evaluation in evaluations:
        sources.setdefault(evaluation.submission, set()).add(evaluation.source_sha256)
    labels: dict[tuple[str, str], str] = {}
    for name, texts in sources.items():
        paths = {sha: PurePath(files[name, sha]).with_suffix("") for sha in texts if (name, sha) in files}
        if len(texts) > 1 and len(paths) == len(texts):
            labels |= {(name, sha): label for sha, label in _shortest(paths).items()}
    return [
        msgspec.structs.replace(e, submission=labels.get((e.submission, e.source_sha256), e.submission))
        for e in evaluations
    ]


def _shortest(paths: Mapping[str, PurePath]) -> dict[str, str]:
    """The ends of paths, of as few parts as make all of them different."""
    for count in range(1, max(len(path.parts) for path in paths.values()) + 1):
        ends = {key: "/".join(path.parts[-count:]) for key, path in paths.items()}
        if len(set(ends.values())) == len(ends):
            return ends
    return {key: str(path) for key, path in paths.items()}
