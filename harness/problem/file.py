"""A problem file as a module, and sentences that name its line when it fails."""

from __future__ import annotations

import importlib.util
import re
import traceback
from pathlib import Path
from types import ModuleType

import torch

from harness.errors import UsageError
from harness.paths import no_such_problem


def import_file(path: Path) -> ModuleType:
    """Run the file. Raises UsageError when it is missing or fails."""
    if not path.is_file():
        raise UsageError(no_such_problem(path))
    spec = importlib.util.spec_from_file_location(f"problem_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"The problem file {path} cannot be loaded: {said(path, error)}.{_submission_hint(path)}"
        ) from error
    return module


def said(path: Path, error: BaseException) -> str:
    """An error's type and message, and the line of the problem file that it comes from."""
    of_the_file = isinstance(error, SyntaxError) and error.filename is not None and _is(path, error.filename)
    message = error.msg if isinstance(error, SyntaxError) and of_the_file else str(error)
    line = _line(path, error)
    where = "" if line is None else f" (line {line})"
    return f"{type(error).__name__}: {message.rstrip('.')}{where}"


def _line(path: Path, error: BaseException) -> int | None:
    """The last line of the problem file itself on the way to `error`, which a library may have raised."""
    if isinstance(error, SyntaxError) and error.filename is not None and _is(path, error.filename):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if _is(path, frame.filename)), None)


def _is(path: Path, filename: str) -> bool:
    return Path(filename).absolute() == path.absolute()


def _submission_hint(path: Path) -> str:
    """A sentence for a file that defines ModelNew and no Model. It reads the text, since the file may not load."""
    text = path.read_text(errors="replace")
    defined = re.findall(r"^(?:class\s+)?(Model|ModelNew)\s*[(:=]", text, re.MULTILINE)
    if "ModelNew" not in defined or "Model" in defined:
        return ""
    return (
        " It defines ModelNew and no Model, so it looks like a submission and not a problem: --problem takes the file "
        "whose Model is the reference."
    )


def model_of(path: Path, module: ModuleType) -> type[torch.nn.Module]:
    """The reference. Raises UsageError when there is none."""
    model = getattr(module, "Model", None)
    if not isinstance(model, type):
        raise UsageError(
            f"{path} defines no Model; a problem needs a class of that name as its reference.{_submission_hint(path)}"
        )
    return model
