"""A private folder for texts that are judged and need not lie in a file of the user's."""

from __future__ import annotations

import contextlib
import hashlib
import shlex
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from harness.errors import UsageError, one_line
from harness.storage.disk import temporary_folder
from harness.verdict import Case, CaseFailed, Evaluation

# Of a file's name, as Linux's file systems allow.
MAX_NAME_BYTES = 255


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A folder that nobody else can read, gone afterwards. Raises HarnessError where the disk has no room."""
    with tempfile.TemporaryDirectory(prefix="kernelgate-again-", dir=temporary_folder()) as name:
        yield Path(name).resolve()


def put(folder: Path, name: str, text: bytes) -> Path:
    """Write `text` to NAME.py in a folder of its own in `folder`. Names come from databases and bundles, which may be
    anybody's: raises UsageError for one that names no file."""
    file = f"{name}.py"
    if not name or "/" in name or "\0" in name or len(file.encode(errors="replace")) > MAX_NAME_BYTES:
        raise UsageError(f"'{one_line(name[:80])}' is no file's name.")
    path = folder / hashlib.sha256(text).hexdigest()[:16] / file
    path.parent.mkdir(exist_ok=True)
    try:
        path.write_bytes(text)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"'{one_line(name[:80])}.py' cannot be written: {error}.") from error
    return path


def named_in_commands(path: Path) -> str:
    """How a command that repeats a case names a file in a private folder."""
    return one_line(shlex.quote(str(path)))


def with_commands(evaluation: Evaluation, command: Callable[[str], str]) -> Evaluation:
    """`evaluation` with `command` of each command that repeats a case: files in a private folder will be gone."""

    def of(case: Case) -> Case:
        if not isinstance(case, CaseFailed):
            return case
        return msgspec.structs.replace(case, repeat=command(case.repeat))

    return msgspec.structs.replace(evaluation, cases=[of(case) for case in evaluation.cases])
