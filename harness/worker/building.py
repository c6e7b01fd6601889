"""Extensions in a worker: what a submission asks the judge for, and what a worker that runs none builds for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from harness.build.entry import Entry
from harness.build.extension import BuildFailed, Unsupported
from harness.device.toolchains import toolchain
from harness.protocol.channel import BadMessage
from harness.protocol.wire import MAX_WANTED, Build, Built, Lent, NotBuilt, Request, Wanted


def build(request: Build, emulator_cache: Path) -> Built:
    """Build what is asked for. A failure that says nothing of the sources gives no library, and no word."""
    compilers = toolchain(
        request.device, emulator_cache, check=request.check, architecture=request.architecture, forks=True
    )
    entry = Entry.of(request.extension, compilers, Path(request.folder))
    started = time.perf_counter()
    try:
        entry.build(compilers)
    except (BuildFailed, Unsupported) as error:
        return Built(refused=NotBuilt(entry.digest, str(error), isinstance(error, Unsupported)))
    except Exception:  # the submission's worker meets it, too, and says it
        return Built()
    return Built(time.perf_counter() - started)


def ask_for(entries: Sequence[Entry], want: Callable[[Wanted], Request]) -> Mapping[str, BuildFailed | Unsupported]:
    """Have the judge put what it can build of `entries` where they are looked for; what compilers said of the others,
    by their digests."""
    wanted = Wanted([entry.extension for entry in entries][:MAX_WANTED])
    try:
        msgspec.json.decode(msgspec.json.encode(wanted), type=Wanted)
        answer = want(wanted)
    except (BadMessage, ValueError, TypeError):  # longer than a message may be, or no text: compilers say what is wrong
        return {}
    assert isinstance(answer, Lent)
    return {
        refused.digest: (Unsupported if refused.unsupported else BuildFailed)(refused.message)
        for refused in answer.refused
    }
