"""A place that judges, on a node of a cluster."""

from __future__ import annotations

import contextlib
import hashlib
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.api import Pool
from harness.cluster.facts import facts
from harness.cluster.wire import About, decode_parts, decode_task, encode
from harness.errors import HarnessError
from harness.isolation import builds
from harness.paths import shared_builds
from harness.report.formats import json as results_json
from harness.verdict import SCHEMA, CaseFailed, Evaluation, Results

# What others build is waited for so long, and then built here. A build takes a minute or two.
WAIT_S = 300.0


class Seat:
    """An actor of Ray's holds it, and judges one submission after the other. What runs submissions is the pool's:
    processes of this project, which it can kill, and none of Ray's. They end with the actor."""

    def __init__(self, device: str, isolation: str) -> None:
        self._device, self._isolation = device, isolation
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._pool: Pool | None = None

    def about(self) -> bytes:
        """About, as JSON. From here on what judges loads."""
        import ray

        node = ray.util.get_node_ip_address()
        try:
            environment = facts(self._device, self._isolation)
        except HarnessError as error:
            return encode(About(node=node, failure=str(error)))
        self._folder = tempfile.TemporaryDirectory(prefix="kernelgate-seat-")
        options: Any = {"device": self._device}
        self._pool = Pool(isolation=self._isolation, **options)
        return encode(About(node=node, architecture=environment.pop("architecture"), environment=environment))

    def judge(self, task: bytes, source: bytes, problem: bytes, built: Sequence[Any] = ()) -> bytes:
        """The results of a Task, as eval.py writes them: one evaluation. `built` are Ray's references to what others
        build of it, which is waited for. Raises OSError where its texts cannot be written."""
        asked = decode_task(task)
        assert self._pool
        for reference in built:
            keep_built(reference)
        submission = self._written(source, asked.file)
        try:
            used = self._written(problem, asked.problem)
            options = msgspec.structs.asdict(asked.options) | {"problem": str(used)}
            evaluation = self._pool.run([submission], **options)[0].evaluation
        finally:
            submission.unlink()
        evaluation = _repeated_there(evaluation, dict(zip(map(str, (submission, used)), asked.shown, strict=True)))
        return results_json.dumps(Results(schema=SCHEMA, environment={}, evaluations=[evaluation]))

    def close(self) -> None:
        """End what is judged, with all its processes, and leave no file."""
        if self._pool:
            self._pool.close()
        if self._folder:
            self._folder.cleanup()

    def _written(self, text: bytes, name: str) -> Path:
        """A file of that name with that text, in a folder of the text's own."""
        assert self._folder
        path = Path(self._folder.name) / hashlib.sha256(text).hexdigest()[:32] / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text)
        return path


def keep_built(built: Any) -> None:
    """Put what another node builds where what is built here lies."""
    import ray

    with contextlib.suppress(ray.exceptions.RayError):  # its node was lost, or others have all processors
        for part in decode_parts(ray.get(built, timeout=WAIT_S)):
            builds.put(shared_builds(), part.digest, part.files)


def _repeated_there(evaluation: Evaluation, files: Mapping[str, str]) -> Evaluation:
    """With commands that repeat a case on the driver's machine: files of this one have other names there."""

    def there(case: CaseFailed) -> CaseFailed:
        words = [files.get(word, word) for word in shlex.split(case.repeat)]
        return msgspec.structs.replace(case, repeat=shlex.join(words))

    cases = [there(case) if isinstance(case, CaseFailed) else case for case in evaluation.cases]
    finding = evaluation.finding and there(evaluation.finding)
    return msgspec.structs.replace(evaluation, cases=cases, finding=finding)
