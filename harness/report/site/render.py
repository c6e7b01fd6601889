"""Templates: every text that they show is escaped, and has no characters that nobody sees."""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from harness.report.site.texts import day, plain

HERE = Path(__file__).resolve().parent
STYLE = "site.css"
SCRIPTS = {"theme": "theme.js", "site": "site.js", "compare": "compare.js"}


@functools.cache
def environment() -> Environment:
    """With the style sheet and the scripts, which stand in each page: it can be sent to somebody as it is."""
    found = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    texts = {name: (HERE / "templates" / file).read_text() for name, file in {"style": STYLE, **SCRIPTS}.items()}
    found.globals |= {name: Markup(text) for name, text in texts.items()}
    found.globals["policy"] = {name: f"'sha256-{_sha256(text)}'" for name, text in texts.items()}
    found.filters["day"] = day
    return found


def page(template: str, **values: Any) -> str:
    """The page; `root` leads from it to the site's root."""
    return environment().get_template(template).render(**values)


def _shown(value: object) -> object:
    return plain(value) if type(value) is str else value


def _sha256(text: str) -> str:
    """As a Content-Security-Policy names a script: nothing else runs."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
