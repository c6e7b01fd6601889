"""Bundles: one evaluation in one file, with all that it takes to judge it anew.

A zip of four members: `source.py` and `problem.py` byte for byte as they were judged, `result.json` as --json writes it
(verdict, seed, raw samples, environment with the judge's version), and `bundle.json` with a schema and a digest over
the other three. A bundle may be anybody's: nothing in it is unpacked by its name, and nothing is believed by its size.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import UsageError, one_line
from harness.report.formats import json
from harness.verdict import SCHEMA, Evaluation, Results

BUNDLE_SCHEMA = "kernelgate.bundle/1"

MANIFEST = "bundle.json"
SOURCE, PROBLEM, RESULT = "source.py", "problem.py", "result.json"

# What members may hold, unpacked, and a whole bundle. A result of a hundred cases with ten baselines has a few MB.
LIMITS_BYTES = {MANIFEST: 1 << 12, SOURCE: 16 << 20, PROBLEM: 1 << 20, RESULT: 64 << 20}
MAX_BYTES = 8 << 20


@dataclass(frozen=True)
class Bundle:
    """One evaluation, and the texts that it is of."""

    evaluation: Evaluation
    environment: Mapping[str, Any]
    source: bytes
    problem: bytes

    @property
    def digest(self) -> str:
        """SHA-256 over all of it."""
        return _digest(_parts(self))


class _Manifest(msgspec.Struct, frozen=True):
    schema: str
    digest: str


def packed(bundle: Bundle) -> bytes:
    """A bundle's file: the same bundle has the same bytes. Raises UsageError for one that could not be read back."""
    parts = _parts(bundle)
    manifest = msgspec.json.encode(_Manifest(BUNDLE_SCHEMA, bundle.digest)) + b"\n"
    page = io.BytesIO()
    with zipfile.ZipFile(page, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {MANIFEST: manifest, **parts}.items():
            _require(len(content) <= LIMITS_BYTES[name], f"its {name} has more than {_mib(LIMITS_BYTES[name])}")
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    _require(page.tell() <= MAX_BYTES, f"it has more than {_mib(MAX_BYTES)}")
    return page.getvalue()


def read_bundle(path: Path) -> Bundle:
    """Raises UsageError, in a sentence, for a file that is no bundle, a damaged one, or one of another schema."""
    try:
        return unpacked(_content(path))
    except UsageError as error:
        raise UsageError(f"{path} is no bundle that can be verified: {error}") from error


def unpacked(data: bytes) -> Bundle:
    """As `read_bundle`, from the content of a file."""
    parts = _members(data)
    manifest = _manifest(parts.pop(MANIFEST))
    found = _digest(parts)
    _require(
        found == manifest.digest,
        f"its content has the digest {found[:12]}…, and it says '{one_line(manifest.digest[:12])}…'; it was damaged or "
        "changed",
    )
    results = json.loads(parts[RESULT])
    _require(len(results.evaluations) == 1, f"it has {len(results.evaluations)} evaluations, and a bundle has one")
    bundle = Bundle(results.evaluations[0], results.environment, parts[SOURCE], parts[PROBLEM])
    _require_its_texts(bundle)
    return bundle


def _require_its_texts(bundle: Bundle) -> None:
    evaluation = bundle.evaluation
    texts = ((bundle.source, evaluation.source_sha256, SOURCE), (bundle.problem, evaluation.problem_sha256, PROBLEM))
    for text, sha256, name in texts:
        _require(hashlib.sha256(text).hexdigest() == sha256, f"its {name} is not the text that its result is of")


def _parts(bundle: Bundle) -> dict[str, bytes]:
    results = Results(schema=SCHEMA, environment=dict(bundle.environment), evaluations=[bundle.evaluation])
    return {SOURCE: bundle.source, PROBLEM: bundle.problem, RESULT: json.dumps(results)}


def _digest(parts: Mapping[str, bytes]) -> str:
    lines = [f"{hashlib.sha256(parts[name]).hexdigest()}  {name}\n" for name in sorted(parts)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _content(path: Path) -> bytes:
    """A file's content, of which no more is read than a bundle may have."""
    _require(not path.exists() or path.is_file(), "it is no file")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"it cannot be read: {error.strerror}.") from error
    _require(len(data) <= MAX_BYTES, f"it has more than {_mib(MAX_BYTES)}")
    return data


def _members(data: bytes) -> dict[str, bytes]:
    """The four members, each no longer than it may be whatever the file says of it."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _require_names([info.filename for info in archive.infolist()])
            _require_usual(archive.infolist())
            return {info.filename: _member(archive, info) for info in archive.infolist()}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError) as error:
        raise UsageError(f"it is no zip file, or a damaged one ({one_line(str(error)[:200])}).") from error


def _require_names(names: list[str]) -> None:
    for name in names:
        _require(name in LIMITS_BYTES, f"it holds '{one_line(name[:80])}', which no bundle has")
    for name in LIMITS_BYTES:
        _require(names.count(name) == 1, f"it holds {name} {names.count(name)} times, and a bundle has it once")


def _require_usual(members: list[zipfile.ZipInfo]) -> None:
    """Other compressions unpack more from a byte, and take more memory for it."""
    for info in members:
        usual = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        _require(usual, f"its {info.filename} is compressed in another way than deflated")


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    limit = LIMITS_BYTES[info.filename]
    with archive.open(info) as member:
        content = member.read(limit + 1)
    _require(len(content) <= limit, f"its {info.filename} has more than {_mib(limit)}")
    return content


def _manifest(content: bytes) -> _Manifest:
    try:
        manifest = msgspec.json.decode(content, type=_Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"its {MANIFEST} cannot be read: {one_line(str(error))}.") from error
    _require(
        manifest.schema == BUNDLE_SCHEMA,
        f"its schema is '{one_line(manifest.schema[:80])}', and this kernelgate reads '{BUNDLE_SCHEMA}'",
    )
    return manifest


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise UsageError(f"{otherwise}.")


def _mib(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size} bytes"
