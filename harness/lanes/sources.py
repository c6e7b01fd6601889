"""What a caller has judged: a file, or a text."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError, a_type, name_of
from harness.submission import content

# What a text may be called: its name becomes a file's.
_NAME = re.compile(r"\w[\w.-]{0,99}")


@dataclass(frozen=True)
class Source:
    """A submission's file, or its text with a name for reports."""

    path: Path | None = None
    text: str = ""
    name: str = ""

    @classmethod
    def read(cls, given: object, name: str) -> Source:
        """Of a path, or of a text: text that has several lines, or does not end in .py, is the submission itself.
        Raises UsageError for anything else, and for a name that a file cannot have."""
        if isinstance(given, Source):
            return given
        if isinstance(given, os.PathLike) or (isinstance(given, str) and given.endswith(".py") and "\n" not in given):
            return cls.of_file(Path(given))
        if not isinstance(given, str):
            raise UsageError(f"A source is text or a path, and this is {a_type(given)}.")
        return cls.of_text(given, name)

    @classmethod
    def of_file(cls, path: Path) -> Source:
        return cls(path=path.absolute(), name=name_of(path))

    @classmethod
    def of_text(cls, text: str, name: str) -> Source:
        """Raises UsageError for a name that a file cannot have."""
        if not _NAME.fullmatch(name):
            raise UsageError(f"A source cannot be called {name[:100]!r}: use letters, digits, '_', '.' and '-'.")
        return cls(text=text, name=name)

    def require_problem(self, problem: str | None) -> None:
        """Raises UsageError for a text without one: it lies in no problem's folder."""
        if not self.path and not problem:
            raise UsageError("Which problem is a text for? Say it by 'problem', a file or a name in problems/.")

    @contextlib.contextmanager
    def as_file(self, folder: Path) -> Iterator[Path]:
        """Where its file is meanwhile; that of a text lies in a folder of its own in `folder`."""
        if self.path:
            yield self.path
            return
        own = folder / os.urandom(8).hex()
        own.mkdir()
        file = own / f"{self.name}.py"
        try:
            file.write_bytes(self._bytes())
            yield file
        finally:
            shutil.rmtree(own, ignore_errors=True)

    def sha256(self) -> str:
        """Of its content; empty for a file that cannot be read."""
        try:
            data = content(self.path) if self.path else self._bytes()
        except UsageError:
            return ""
        return hashlib.sha256(data).hexdigest()

    def _bytes(self) -> bytes:
        return self.text.encode(errors="surrogatepass")
