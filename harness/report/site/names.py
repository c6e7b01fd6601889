"""Names of the site's files: digests and plain words, whatever the results call themselves."""

from __future__ import annotations

import hashlib
import re

_DIGITS = 16


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()


def submission_key(source_sha256: str, problem: str, device: str) -> str:
    """Of a source's page for one problem and device: 16 hexadecimal digits."""
    return _digest(source_sha256, problem, device)[:_DIGITS]


def problem_key(problem: str) -> str:
    """Of a problem's page: its name as far as it is plain, and a digest."""
    words = re.sub(r"[^a-z0-9]+", "-", problem.lower()).strip("-")[:40]
    return f"{words}-{_digest(problem)[:8]}" if words else _digest(problem)[:_DIGITS]


def page(key: str, number: int) -> str:
    """The file of a page that goes on in further ones, from 1."""
    return f"{key}.html" if number == 1 else f"{key}-{number}.html"
