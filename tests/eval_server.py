"""eval.py, many times: each run a process of its own, forked from one that has loaded what a judge loads.

To load torch takes a second and a half of processor time, and the tests start eval.py two hundred times. What a run
does is eval.py's own from its first line on, with its own arguments, environment, folder and streams. A program of its
own it must be where times are taken, where something looks at the judge's process from outside, or for a variable that
is read while torch is loaded: see tests/helpers.py.

What a run forks workers of the CPU from has torch in the same way: see `_Zygotes`.

    python -m tests.eval_server CONTROL_FD
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from harness.process import SPINS_BRIEFLY

ROOT = Path(__file__).resolve().parent.parent
_FILES = 3  # of each request: standard output, standard error, and where the process's number and exit code are written
_MAX_BYTES = 1 << 20


class EvalServer:
    """The process that runs are forked from; it ends with the one that started it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment` has what libraries read while they are loaded, beside what is set here."""
        self._control, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MAX_BYTES)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.eval_server", str(theirs.fileno())],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
                env={**os.environ, **SPINS_BRIEFLY, **environment},
            )  # fmt: skip

    def end(self) -> None:
        """Runs that are under way go on."""
        self._control.close()
        self._process.wait()

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], timeout_s: float, folder: Path = ROOT
    ) -> subprocess.CompletedProcess[str]:
        """As subprocess.run of eval.py in `folder` would. Raises subprocess.TimeoutExpired."""
        told = {"arguments": list(arguments), "environment": dict(environment), "folder": str(folder)}
        stdout, stderr = _Heard(), _Heard()
        reading, writing = os.pipe()
        with open(reading, "rb", buffering=0) as answers:
            try:
                socket.send_fds(self._control, [json.dumps(told).encode()], [stdout.end, stderr.end, writing])
            finally:
                for end in (stdout.end, stderr.end, writing):
                    os.close(end)
            pid = _number(answers, None)
            try:
                code = _number(answers, timeout_s)
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(["eval.py", *arguments], timeout_s) from None
        return subprocess.CompletedProcess(["eval.py", *arguments], code, stdout.all(), stderr.all())


class _Heard:
    """What is written to the `end` of a pipe, read as it comes."""

    def __init__(self) -> None:
        reading, self.end = os.pipe()
        self._said: list[bytes] = []
        self._reader = threading.Thread(target=self._read, args=[reading], daemon=True)
        self._reader.start()

    def _read(self, reading: int) -> None:
        with open(reading, "rb") as pipe:
            self._said.append(pipe.read())

    def all(self) -> str:
        """Once nobody has the end open any more."""
        self._reader.join()
        return self._said[0].decode()


def _number(answers, timeout_s: float | None) -> int:
    """The next of an answer's two lines, each of which comes whole. Raises TimeoutError."""
    if not select.select([answers], [], [], timeout_s)[0]:
        raise TimeoutError
    line = answers.read(16)
    assert line, "the process that forks eval.py has died"
    return int(line)


# ---------------------------------------------------------------------- the process itself


def main() -> None:
    """Load what a judge loads and its workers do, and fork one for each request."""
    import torch.fx.experimental.symbolic_shapes  # noqa: F401 - sympy, which the first gradient loads

    import harness.cli
    import harness.device.emulator
    import harness.device.host
    import harness.environment
    import harness.isolation.starter
    import harness.judge
    import harness.report.formats.json
    import harness.report.formats.terminal
    import harness.tools.sanitizing
    import harness.worker.session
    import harness.worker.zygote  # noqa: F401

    gc.freeze()  # a collection in a run would copy the pages of all that was loaded
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runs are interrupted, and who asked for them
    running: dict[int, int] = {}
    signal.signal(signal.SIGCHLD, lambda *_: _reap(running))
    control = socket.socket(fileno=int(sys.argv[1]))
    while True:
        request, files, _, _ = socket.recv_fds(control, _MAX_BYTES, _FILES)
        if not request:
            return
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        pid = os.fork()
        if not pid:
            control.close()
            _become(json.loads(request), *files)
        running[pid] = files.pop()
        os.write(running[pid], b"%-16d" % pid)
        for file in files:
            os.close(file)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def _reap(running: dict[int, int]) -> None:
    """Say the codes of all that have ended."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            answer = running.pop(ended[0])
            with contextlib.suppress(BrokenPipeError):  # it had no time left
                os.write(answer, b"%-16d" % os.waitstatus_to_exitcode(ended[1]))
            os.close(answer)


def _become(request: dict, stdout: int, stderr: int, answer: int) -> None:
    """Be what `python eval.py ARGUMENTS` is, from eval.py's first line on. Does not return."""
    os.close(answer)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # what TMPDIR says now
    os.chdir(request["folder"])
    sys.argv = [str(ROOT / "eval.py"), *request["arguments"]]
    _Zygotes().take_over()
    _end_with(lambda: runpy.run_path(sys.argv[0], run_name="__main__"))


def _end_with(run: Callable[[], object]) -> NoReturn:
    """End as a program does that is `run` alone."""
    code = 1
    try:
        run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


# ---------------------------------------------------------------------- what a run forks its workers from


class _Zygotes:
    """In place of the program `python -m harness.worker.zygote` a run of eval.py gets a fork of itself, made before
    eval.py's first line: it is the run's child, holds nothing of what the run knows, and has loaded torch.

    Once it is asked for it has the program's arguments, environment, streams and files. The emulator's has to load
    other things before torch, and stays a program, as does a second one of a run."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        self._pid = os.fork()
        if not self._pid:
            self._control.close()
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # as the program does first
            _wait_to_be_a_zygote(theirs)
        theirs.close()

    def take_over(self) -> None:
        """Have this process's zygote be this one."""
        from harness.isolation import launch

        own = {name: getattr(launch.subprocess, name) for name in ("DEVNULL", "TimeoutExpired")}
        launch.subprocess = SimpleNamespace(**own, Popen=self._popen)  # type: ignore[assignment]

    def _popen(self, words: list[str], **options: Any) -> Any:
        if words[2:4] != ["-m", "harness.worker.zygote"] or words[5] != "cpu" or not self._pid:
            return subprocess.Popen(words, **options)
        (control,), output = options["pass_fds"], options["stdout"]
        request = json.dumps({"arguments": words[5:], "environment": options["env"]}).encode()
        socket.send_fds(self._control, [request], [output.fileno(), control])
        pid, self._pid = self._pid, 0
        return SimpleNamespace(pid=pid)


def _wait_to_be_a_zygote(control: socket.socket) -> NoReturn:
    """Be what `python -P -m harness.worker.zygote` is, once a message says so; or end with the run."""
    request, files, _, _ = socket.recv_fds(control, _MAX_BYTES, 2)
    if not request:
        os._exit(0)
    told, (output, judge) = json.loads(request), files
    with open(os.devnull) as nothing:
        for stream, fd in enumerate((nothing.fileno(), output, output)):
            os.dup2(fd, stream)
    os.close(output)
    control.close()
    os.environ.clear()
    os.environ.update(told["environment"])
    sys.dont_write_bytecode = True
    sys.argv = ["zygote", str(judge), *told["arguments"]]
    from harness.worker import zygote

    _end_with(zygote.main)


if __name__ == "__main__":
    main()
