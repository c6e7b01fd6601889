"""Texts of others, as pages show them."""

from __future__ import annotations

import re

# A message of a page at the most; the raw JSON has all of it.
LONGEST_CHARACTERS = 4000

# A name at the most.
LONGEST_NAME = 80


# Unicode's categories Cc but tab and line end, Cf, Cs and Co.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\ud800-\uf8ff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)

_HIDDEN_ASCII = re.compile("[\x00-\x08\x0b-\x1f\x7f]")


def plain(text: str) -> str:
    """With characters that nobody sees, or that turn the order of others round, as their numbers: a name must not look
    like another one."""
    if text.isascii() and not _HIDDEN_ASCII.search(text):
        return text
    return _HIDDEN.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", text)


def shortened(text: str, characters: int = LONGEST_CHARACTERS) -> str:
    """As much of it as a page has room for."""
    return text if len(text) <= characters else f"{text[:characters]} … ({len(text) - characters:,} characters more)"


def named(text: str) -> str:
    """A name as a page shows it."""
    return shortened(text, LONGEST_NAME)


def bytes_of(count: float) -> str:
    """A number of bytes in the unit that reads best."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def rate(bytes_per_us: float) -> str:
    """Bytes a microsecond as bytes a second."""
    return f"{bytes_of(bytes_per_us * 1e6)}/s" if bytes_per_us < 1e6 else f"{bytes_per_us / 1e6:.3g} TB/s"


def times(value: float) -> str:
    """A ratio at an axis."""
    return f"{value:.3g}×"


def day(date: str) -> str:
    """The day of an ISO 8601 date."""
    return date[:10] or "unknown"


def count_of(number: int, thing: str, things: str = "") -> str:
    """`1 case`, `2 cases`."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"
