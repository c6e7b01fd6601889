"""What a line of standard input asks for."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from harness.errors import UsageError, misfit

# An id comes back in each line about its request, none of which is long.
MOST_OF_AN_ID = 200

Id = str | int
Seconds = Annotated[float, Meta(gt=0)]


class Request(Struct, frozen=True, kw_only=True):
    """One submission to judge: its text or its file."""

    id: Id
    source: str | None = None
    path: str | None = None
    name: str = "source"
    """What reports call a text."""
    limit_s: Seconds | None = None
    stages: bool = False
    """Whether each stage is a line when it begins."""
    given: dict[str, Any] = {}
    """Options: whatever else the line has."""


class Cancel(Struct, frozen=True):
    """End what was asked for under an id."""

    id: Id


class BadRequest(UsageError):
    """A line that asks for nothing; `id` is what it gives as its own, if anything."""

    def __init__(self, message: str, of: Id | None = None) -> None:
        self.id = of
        super().__init__(message)


_OWN = set(Request.__struct_fields__) - {"given"}


def read(line: bytes) -> Request | Cancel:
    """Raises BadRequest."""
    try:
        said = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"A request is one line of JSON, and this is none: {error}.") from error
    if not isinstance(said, dict):
        raise BadRequest('A request is a JSON object with "id" and "source" or "path", or with "cancel".')
    if "cancel" in said:
        return Cancel(_read_id(said["cancel"]))
    if "id" not in said:
        raise BadRequest('The request has no "id"; give it a text or a number that its answer will have.')
    own_id = _read_id(said["id"])
    given = {name: value for name, value in said.items() if name not in _OWN}
    try:
        request = msgspec.convert({**{k: said[k] for k in _OWN & said.keys()}, "given": given}, type=Request)
    except msgspec.ValidationError as error:
        raise BadRequest(f"The request is wrong: {misfit(error)}.", own_id) from error
    if (request.source is None) == (request.path is None):
        raise BadRequest('A request has either "source", a submission\'s text, or "path", its file.', own_id)
    return request


def _read_id(given: object) -> Id:
    is_id = isinstance(given, str) or (isinstance(given, int) and not isinstance(given, bool))
    if not is_id or len(msgspec.json.encode(given)) > MOST_OF_AN_ID:
        raise BadRequest(f"An id is a text or a whole number of less than {MOST_OF_AN_ID} bytes.")
    assert isinstance(given, str | int)
    return given
