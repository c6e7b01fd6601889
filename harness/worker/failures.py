"""What the judge is told of an exception: a reason, and a message in words."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.build.doors import ForbiddenSymbol
from harness.build.extension import NOT_EMULATED, BuildFailed, Unsupported
from harness.build.wrong_call import WrongCall
from harness.errors import out_of_memory, printable
from harness.protocol.wire import Construct, Done, Failed, Reply, Request
from harness.reasons import Reason
from harness.records import Place
from harness.surroundings import NotOfThisMode, SettingChanged
from harness.worker import implementations
from harness.worker.calls import InAContainer, NoGradient
from harness.worker.hints import hint_for
from harness.worker.observer import Observer
from harness.worker.parameters import CannotCarry
from harness.worker.wrong_arguments import WrongArguments

# Longer messages of a submission's own errors are cut: they begin with what matters.
MAX_TEXT = 2000

# Behind the signatures that would have fitted pybind11 prints all elements of what came.
_INVOKED_WITH = "\n\nInvoked with:"


class Failures:
    """Puts exceptions of one implementation into words."""

    def __init__(
        self, path: Path, take_forbidden: Callable[[], list[str]], observer: Observer, *, on_gpu: bool
    ) -> None:
        """`path` is the file whose lines messages name. `take_forbidden` gives the forbidden operators that were called
        since the last time. With `on_gpu`, CUDA's errors are faults of a kernel."""
        self._path = path
        self._take_forbidden = take_forbidden
        self._observer = observer
        self._on_gpu = on_gpu
        self._rehearsed = False
        self._in_rehearsal = ""
        """What was raised last while the submission was rehearsed."""

    def of_loading(self, error: BaseException) -> Failed:
        """An exception that came while the implementation was built and imported."""
        match error:
            case ForbiddenSymbol():
                return Failed(reason=Reason.FORBIDDEN_OP, message=str(error)[:MAX_TEXT])
            case BuildFailed():
                return self._of_sources(Reason.BUILD_FAILED, error)
            case Unsupported():
                return self._of_sources(Reason.UNSUPPORTED_BY_EMULATOR, error)
            case implementations.LoadFailed():
                return self._failed(Reason.LOAD_FAILED, error, plain=True)
            case WrongCall():
                return self._failed(Reason.LOAD_FAILED, error, plain=True)
        # Python's parser raises MemoryError for text that is nested too deep, before a line of it runs.
        if out_of_memory(error) and implementations.line_of_error(error, self._path):
            return self._failed(Reason.OUT_OF_MEMORY, error)
        return self._failed(Reason.LOAD_FAILED, error)

    def of_answer(self, error: Exception, request: Request) -> Failed:
        """An exception that came while `request` was answered."""
        match error:
            case ForbiddenSymbol():
                return Failed(reason=Reason.FORBIDDEN_OP, message=str(error)[:MAX_TEXT])
            case Unsupported():  # built in a constructor or in a call
                return self._of_sources(Reason.UNSUPPORTED_BY_EMULATOR, error)
            case CannotCarry():
                return Failed(reason=Reason.PARAMETERS_NOT_CARRIED, message=str(error))
            case InAContainer() | NotOfThisMode():
                return self._failed(Reason.WRONG_OUTPUT, error, plain=True)
            case SettingChanged():
                return self._failed(Reason.SETTING_CHANGED, error, plain=True)
            case NoGradient():
                return self._failed(Reason.NO_GRADIENT, error, plain=True)
            case WrongArguments():
                return self._failed(
                    Reason.LOAD_FAILED if isinstance(request, Construct) else Reason.RAISED, error, plain=True
                )
        if out_of_memory(error):
            return self._failed(Reason.OUT_OF_MEMORY, error)
        return self._failed(Reason.LOAD_FAILED if isinstance(request, Construct) else Reason.RAISED, error)

    def _of_sources(self, reason: Reason, error: BaseException) -> Failed:
        """What a compiler says of the sources. Where it names no line of the file, the call of load_inline is shown."""
        text = str(error)[:MAX_TEXT]
        named = [int(line) for line in re.findall(rf"^{re.escape(self._path.name)}:(\d{{1,7}}): ", text, re.MULTILINE)]
        places = [Place(printable(self._path.name), line) for line in dict.fromkeys(named)]
        if not places and (called := implementations.place_of_error(error, self._path)):
            places = [called]
        return Failed(reason=reason, message=text, places=places[:1])  # the first error is mostly the others' cause

    def rehearsed(self, rehearse: Callable[[], Reply]) -> Reply:
        """The reply of a rehearsal. An exception in it is kept for later messages: zeros may be no input that makes
        sense, and what matters a case's own call raises again. Forbidden operators and findings are no less forbidden
        there."""
        self._rehearsed = True
        try:
            return rehearse()
        except Exception as error:
            failed = self._failed(Reason.RAISED, error)
            if failed.reason != Reason.RAISED or failed.findings:
                return failed
            self._in_rehearsal = failed.message
            return Done()

    def of_device(self, error: Exception) -> Failed:
        """An exception that came while the device was waited for."""
        return self._failed(Reason.OUT_OF_MEMORY if out_of_memory(error) else Reason.RAISED, error)

    def _failed(self, reason: Reason, error: BaseException, *, plain: bool = False) -> Failed:
        """A `plain` error is a sentence that needs no class or line. A forbidden operator is the reason whatever error
        it became: the submission may have wrapped it in other words."""
        place = implementations.place_of_error(error, self._path)
        where = implementations.line_of_error(error, self._path)
        forbidden = self._take_forbidden()
        if forbidden:
            reason, message = Reason.FORBIDDEN_OP, _forbidden(forbidden[0], where)
        else:
            # Python's parser says the place behind its message, too.
            said = error.msg if isinstance(error, SyntaxError) and where else str(error)
            text = said.partition(_INVOKED_WITH)[0].strip()[:MAX_TEXT] or "no message"
            if _is_refused_process(error):
                text = text.rstrip(".") + self._why_refused()
            elif isinstance(error, NameError | AttributeError | ModuleNotFoundError):
                text += hint_for(error)
            message = printable(text if plain else f"{type(error).__name__}{where}: {text}")
            reason = Reason.UNSUPPORTED_BY_EMULATOR if _is_not_emulated(error) else reason
            if self._on_gpu and "CUDA error" in str(error) and not out_of_memory(error):
                reason = Reason.CUDA_FAULT
        places = [place] if place else []
        return Failed(reason=reason, message=message, findings=self._observer.take_findings(), places=places)

    def _why_refused(self) -> str:
        """Why no process could be started, as the end of a message."""
        if not self._rehearsed:
            return ". A submission can start processes only until its first call"
        ended = f". A rehearsal ended with {self._in_rehearsal}" if self._in_rehearsal else ""
        return (
            ". This call needs a compiler, and none can be started after the rehearsal, in which the model is called "
            "on zeros in the form of each case. What is compiled may depend on dtypes, shapes, strides, alignment and "
            f"modes, and on nothing else{ended}"
        )


def _is_not_emulated(error: BaseException | None) -> bool:
    """Whether it, or what it was raised for, says that the emulator lacks something."""
    return any(NOT_EMULATED in str(one) for one in _chain(error))


def _is_refused_process(error: BaseException | None) -> bool:
    """Whether the system refused a process, or what it refused became `error`."""
    return any(isinstance(one, PermissionError) and one.errno == errno.EPERM for one in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """It, and what it was raised for."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _forbidden(operator: str, where: str) -> str:
    ran = f" It ran{where}." if where else ""
    return f"{operator} must not run in a submission: it is what the submission replaces.{ran}"
