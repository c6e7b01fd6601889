"""A submission imported without a device and without a compiler, where the emulator is yet to be built: what is wrong
with its Python costs seconds, and not the minute that the emulator takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.errors import HarnessError, Stopped, SubmissionError, one_line
from harness.isolation.levels import Isolation
from harness.isolation.sandbox import Worker
from harness.judging.frames import code_frame
from harness.judging.printed import printed_since
from harness.protocol.wire import Failed, Load
from harness.reasons import Reason
from harness.submission import Submission
from harness.verdict import Rejected

# A worker says these where no device and no extension was needed to fail.
CONCLUSIVE = (Reason.LOAD_FAILED, Reason.BUILD_FAILED)

# Importing may take so long; who needs longer is judged as usual.
IMPORT_TIMEOUT_S = 30.0


def refusal(
    submission: Submission, arena_fd: int, isolation: Isolation, problem: Path, common: dict[str, Any]
) -> Rejected | None:
    """The evaluation of a submission that cannot be imported, whatever the device, with the fields in `common`; None
    where only judging it tells. The worker is isolated as the one that judges it would be."""
    source = submission.path.read_bytes()
    try:
        with Worker("cpu", arena_fd, isolation, [problem]) as worker:
            worker.wait_until_ready()
            copy = worker.home.place(one_line(submission.path.name), source)
            worker.tell(Load(kind="submission", path=bytes(copy), build_cache=str(worker.home.path / "none"), dry=True))
            said = worker.hear(IMPORT_TIMEOUT_S)
            printed = printed_since(worker, 0, "")
    except (HarnessError, Stopped):
        return None
    if not isinstance(said, Failed) or said.reason not in CONCLUSIVE:
        return None
    error = SubmissionError(said.reason, said.message, said.places)
    frame = code_frame(source, one_line(submission.path.name), error.places, error.message)
    return Rejected(**common, cases=[], reason=error.reason, message=error.message, frame=frame, printed=printed)
