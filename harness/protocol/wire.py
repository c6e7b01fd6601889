"""Messages between the judge and a worker: typed, bounded JSON, never a pickle.

A worker shares its process with a submission, so nothing that it says is evidence. What it sends is
decoded strictly into the types below and can at worst be wrong; outputs are read by the judge itself.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from harness.errors import KernelgateError
from harness.reasons import Reason
from harness.records import Finding, KernelCounts, KernelResources, Natural

# The largest message is the list of outputs of a round: some hundreds of references of 200 bytes.
MAX_MESSAGE_BYTES = 1 << 20

# A side that takes nothing for so long is as good as gone; the judge must not wait for it for ever.
SEND_TIMEOUT_S = 60.0

_HEADER = struct.Struct("!I")


DeviceTimeMethod = Literal["graph", "graphs", "queue"]

# Why a worker may say that it failed. All other reasons are the judge's own findings.
FAILURES = frozenset({
    Reason.BUILD_FAILED, Reason.CUDA_FAULT, Reason.FORBIDDEN_OP, Reason.LOAD_FAILED, Reason.NO_GRADIENT,
    Reason.OUT_OF_MEMORY, Reason.PARAMETERS_NOT_CARRIED, Reason.RAISED, Reason.UNSUPPORTED_BY_EMULATOR,
    Reason.WRONG_OUTPUT,
})  # fmt: skip


class TensorRef(Struct, frozen=True):
    """A tensor inside the arena: byte offset, shape, element strides and dtype (torch's name)."""

    offset: int
    shape: list[int]
    stride: list[int]
    dtype: str


class NamedTensor(Struct, frozen=True):
    name: str
    tensor: TensorRef


class OutputRef(Struct, frozen=True):
    """A tensor in the worker's memory. `type` is its exact Python type.

    Where the memory is a GPU's, `allocation` is the place of its IPC handle in the reply's `handles`, and
    `allocation_offset` the bytes from the allocation's start to the first element.
    """

    address: Natural
    shape: list[Natural]
    stride: list[Natural]
    dtype: str
    device: str
    type: str
    allocation: int = -1
    allocation_offset: Natural = 0


class ArenaRef(Struct, frozen=True):
    """The shared memory that holds parameters and inputs; `handle` is an IPC handle on a GPU."""

    nbytes: int
    handle: str = ""


# ------------------------------------------------------------------ requests


class Load(Struct, frozen=True, tag="load"):
    """Load what will be run: `kind` is submission, eager, compile, stub or the name of a peer."""

    kind: str
    path: str
    """The submission's file, or the problem's for all others."""
    build_cache: str
    check: bool = False
    allowed_ops: list[str] = []
    forbidden_ops: list[str] = []


class Constant(Struct, frozen=True):
    """An argument of `forward` that is no tensor, its value as `encode_value` gives it."""

    position: int
    value: Any


class Precompilation(Struct, frozen=True):
    """A model and inputs that will be timed later."""

    init: Any
    inputs: list[TensorRef]
    dtype: str
    gradients: bool = False
    """Whether the backward is compiled too."""
    constants: list[Constant] = []


class Precompile(Struct, frozen=True, tag="precompile"):
    """Compile and run once what will be timed, on data of no meaning, so that compilers' caches are warm."""

    precompilations: list[Precompilation]


class Construct(Struct, frozen=True, tag="construct"):
    """Build the model: constructor arguments (see `encode_value`) and the reference's state."""

    arena: ArenaRef
    init: Any
    state: list[NamedTensor]
    dtype: str
    """The floating dtype that the model's own parameters take, empty to leave them."""


class Differentiation(Struct, frozen=True):
    """What is differentiated with respect to what: positions of outputs and inputs, and the names that
    parameters have in the reference."""

    outputs: list[int]
    inputs: list[int]
    parameters: list[str]


class Stage(Struct, frozen=True, tag="stage"):
    """Lay out the inputs of each buffer, and say what one call does and returns.

    With a `differentiation` the last tensors of a buffer are the upstream gradients of its outputs. A call is
    `forward`: outputs; `step`: outputs and gradients; `backward`: gradients, the forward being done by
    `Prepare`; `accumulate`: what two backward passes leave in `.grad`,
    the second with three times the upstream gradients.
    `train` is the mode of the model. `results` is what the null kernel returns, and `alone` says that the reference returns a
    tensor, not in a tuple or list. `constants` stand between the inputs.
    """

    arena: ArenaRef
    buffers: list[list[TensorRef]]
    results: list[TensorRef]
    alone: bool = False
    call: str = "forward"
    differentiation: Differentiation | None = None
    train: bool = True
    constants: list[Constant] = []


class Run(Struct, frozen=True, tag="run"):
    """Call the model once on buffer `buffer`, its outputs poisoned beforehand and its findings collected."""

    buffer: int
    order: str = "forward"
    order_seed: int = 1
    random_seed: int | None = None
    """What torch's generators are seeded with before the calls; None leaves them."""


class Play(Struct, frozen=True, tag="play"):
    """A timed round: call the model on the buffers that `harness.protocol.handshake` hands out, from after turn `turn`.
    Calls on the buffers in `warm_up` come first, outside the clock: Python and launches are slow after a sleep."""

    turn: int
    warm_up: list[int]
    lasts_us: float = 0.0
    """The null kernel's only: how long the device should be busy, at the least."""


class Name(Struct, frozen=True, tag="name"):
    """Say where and what the outputs of the last round are, outside the clock."""


class Prepare(Struct, frozen=True, tag="prepare"):
    """Do the forward of some buffers, outside the clock, of which some are then run; upstream gradients arrive
    after it."""

    buffers: list[int]


class TimeDevice(Struct, frozen=True, tag="time_device"):
    """Say how long the device works on a call, by its own events: `buffers` once each, from one CUDA graph of all, from a
    graph of each, or launched one by one. The first time the calls are run before, too. The answer is a diagnosis and
    never a score."""

    buffers: list[int]
    method: DeviceTimeMethod
    more: bool
    """Whether the same will be asked again: what it needs is kept."""


class Release(Struct, frozen=True, tag="release"):
    """Drop outputs, inputs and model, and give memory back."""


Request = Load | Precompile | Construct | Stage | Run | Prepare | Play | Name | TimeDevice | Release

# ------------------------------------------------------------------ replies


class Loaded(Struct, frozen=True, tag="loaded"):
    build_seconds: float = 0.0
    build_cached: bool = True
    built: bool = False
    version: str = ""
    """The package behind a peer and its version."""
    kernels: list[KernelResources] = []


class Done(Struct, frozen=True, tag="done"):
    pass


class Ran(Struct, frozen=True, tag="ran"):
    """The outputs of an observed call. `inputs` is where the device's copies of its inputs lie."""

    outputs: list[OutputRef]
    handles: list[str] = []
    """IPC handles (hexadecimal) of the allocations that the outputs lie in."""
    inputs: list[OutputRef] = []
    forbidden: list[str] = []
    findings: list[Finding] = []
    counts: list[KernelCounts] = []


class Played(Struct, frozen=True, tag="played"):
    """A round's outputs by their addresses, one list for each call, in order, and no more: the clock is running.
    `issue_us` is how long the calls but the first took to return, a diagnosis and never a score."""

    addresses: list[list[Natural]]
    issue_us: float


class Named(Struct, frozen=True, tag="named"):
    """The outputs of the last round: one list for each call, in order. `device_us` is what a GPU worked on the calls,
    of the null kernel's rounds only; nobody else's word on it is asked for."""

    outputs: list[list[OutputRef]]
    handles: list[str] = []
    forbidden: list[str] = []
    device_us: float = 0.0


class DeviceTimed(Struct, frozen=True, tag="device_timed"):
    """Microseconds of device time of a call in one pass over the buffers; None where the calls cannot be run so.
    `launches` is how many kernels, copies and memory sets a call has, where a graph of them says it."""

    call_us: float | None = None
    launches: float | None = None


class Failed(Struct, frozen=True, tag="failed"):
    reason: Reason
    message: str
    findings: list[Finding] = []

    def __post_init__(self) -> None:
        """Raises ValueError, which makes a message that says otherwise a bad one."""
        if self.reason not in FAILURES:
            raise ValueError(f"a worker cannot say '{self.reason}'")


Reply = Loaded | Done | Ran | Played | Named | DeviceTimed | Failed

_REQUESTS = msgspec.json.Decoder(Request)
_REPLIES = msgspec.json.Decoder(Reply)


class ChannelClosed(KernelgateError):
    """The other side is gone."""


class ChannelTimeout(KernelgateError):
    """Nothing complete came in time."""


class BadMessage(KernelgateError):
    """What came is not a message of this protocol."""


def pack(message: Request | Reply) -> bytes:
    """A message as it travels. Raises BadMessage when it is too large."""
    body = msgspec.json.encode(message)
    if len(body) > MAX_MESSAGE_BYTES:
        raise BadMessage(f"a message of {len(body):,} bytes is larger than {MAX_MESSAGE_BYTES:,}")
    return _HEADER.pack(len(body)) + body


class Channel:
    """One end of a socket pair that carries length-prefixed messages."""

    def __init__(self, sock: socket.socket, *, judge: bool) -> None:
        self._socket = sock
        self._decoder: msgspec.json.Decoder = _REPLIES if judge else _REQUESTS

    def send(self, message: Request | Reply) -> None:
        """Raises ChannelClosed when the other side is gone, BadMessage when the message is too large."""
        self.send_packed(pack(message))

    def send_packed(self, packed: bytes) -> None:
        """Send what `pack` made. Raises ChannelClosed when the other side is gone, or takes nothing."""
        self._socket.settimeout(SEND_TIMEOUT_S)
        try:
            self._socket.sendall(packed)
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def spin(self, for_s: float) -> bool:
        """Wait without sleeping for something to read, at most `for_s`; whether there is something.

        Waking a sleeping process takes 50 to 200 µs on a virtual machine, and not the same each time."""
        self._socket.setblocking(False)
        deadline = time.perf_counter() + for_s
        while True:
            try:
                self._socket.recv(1, socket.MSG_PEEK)
                return True
            except BlockingIOError:
                if time.perf_counter() >= deadline:
                    return False
            except OSError:
                return True  # receive() says what it is

    def unread(self) -> bool:
        """Whether something has come that nobody has read; a closed connection is not something."""
        self._socket.setblocking(False)
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def receive(self, timeout_s: float | None = None) -> Any:
        """The next message. Raises ChannelTimeout, ChannelClosed or BadMessage."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        (size,) = _HEADER.unpack(self._exactly(_HEADER.size, deadline))
        if size > MAX_MESSAGE_BYTES:
            raise BadMessage(f"a message announced {size:,} bytes; at most {MAX_MESSAGE_BYTES:,} are read")
        try:
            return self._decoder.decode(self._exactly(size, deadline))
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadMessage(str(error)) from error

    def fileno(self) -> int:
        return self._socket.fileno()

    def wait(self, timeout_s: float) -> bool:
        """Whether something can be read within `timeout_s`."""
        self._socket.settimeout(timeout_s)
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK)) or True
        except TimeoutError:
            return False
        except OSError:
            return True

    def _exactly(self, count: int, deadline: float | None) -> bytes:
        chunks = bytearray()
        while len(chunks) < count:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise ChannelTimeout
            self._socket.settimeout(left)
            try:
                chunk = self._socket.recv(count - len(chunks))
            except TimeoutError as error:
                raise ChannelTimeout from error
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            if not chunk:
                raise ChannelClosed("the connection ended")
            chunks += chunk
        return bytes(chunks)

    def close(self) -> None:
        self._socket.close()


# ------------------------------------------------------------------ constructor arguments


class DriveCase(Struct, frozen=True):
    """One case of a Drive; `tensors` is a file of torch.save: a dict with the reference's `state` and `inputs`."""

    name: str
    init: Any
    dtype: str
    tensors: str
    backward: bool = False
    """Whether a call is a forward and a backward."""


class Drive(Struct, frozen=True):
    """What `harness.worker.drive` runs, and where it writes a Driven."""

    submission: str
    build_cache: str
    device: str
    result: str
    cases: list[DriveCase]
    warm_ups: int = 0
    traced: bool = False
    """Whether torch.profiler looks at the last call of each case."""


class WireKernelTime(Struct, frozen=True):
    """What torch.profiler saw of one kernel, all of its launches together."""

    kernel: str
    launches: int
    total_us: float


class Driven(Struct, frozen=True):
    """What a finished Drive leaves: the compiler's report, and the times if it was traced."""

    kernels: list[KernelResources]
    times: list[WireKernelTime]


def encode_value(value: Any) -> Any:
    """A constructor argument as JSON that keeps tuples tuples. Raises TypeError for what it cannot carry."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return {"tuple": [encode_value(v) for v in value]}
    if isinstance(value, list):
        return {"list": [encode_value(v) for v in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: encode_value(v) for key, v in value.items()}}
    raise TypeError(f"a constructor argument of type {type(value).__name__} cannot be handed to a submission")


def encode_constants(constants: Mapping[int, Any]) -> list[Constant]:
    """Constants by their position, as they travel. Raises TypeError as `encode_value` does."""
    return [Constant(position, encode_value(value)) for position, value in constants.items()]


def decode_constants(constants: Sequence[Constant]) -> dict[int, Any]:
    """The inverse of `encode_constants`."""
    return {constant.position: decode_value(constant.value) for constant in constants}


def decode_value(value: Any) -> Any:
    """The inverse of `encode_value`."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "dict":
        return {key: decode_value(v) for key, v in content.items()}
    items = [decode_value(v) for v in content]
    return tuple(items) if kind == "tuple" else items
