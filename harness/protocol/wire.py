"""Messages between the judge and a worker: typed, bounded JSON, never a pickle.

A worker shares its process with a submission, so nothing that it says is evidence. Its messages are decoded
strictly into the types below and can at worst be wrong. The judge reads outputs itself.
harness.protocol.channel carries the messages.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from harness.protocol.extension import Extension
from harness.protocol.values import Constant
from harness.reasons import Reason
from harness.records import Finding, KernelCounts, KernelResources, Natural, Place

DeviceTimeMethod = Literal["graph", "graphs", "queue"]

Reweighing = Literal["load_state_dict", "in_place", "moved"]

GradMode = Literal["", "grad", "no_grad", "inference"]

RandomState = Literal["", "kept", "set_back"]

# A failure names so many lines of its source at the most.
MAX_PLACES = 3

# A submission asks for so many extensions at once.
MAX_WANTED = 64

# Why a worker may say that it failed. All other reasons are the judge's own findings.
FAILURES = frozenset({
    Reason.BUILD_FAILED, Reason.CUDA_FAULT, Reason.FORBIDDEN_OP, Reason.LOAD_FAILED, Reason.NO_GRADIENT,
    Reason.OUT_OF_MEMORY, Reason.PARAMETERS_NOT_CARRIED, Reason.RAISED, Reason.SETTING_CHANGED,
    Reason.UNSUPPORTED_BY_EMULATOR, Reason.WRONG_OUTPUT,
})  # fmt: skip


class TensorRef(Struct, frozen=True):
    """A tensor inside the arena: byte offset, shape, element strides and dtype (torch's name)."""

    offset: int
    shape: list[int]
    stride: list[int]
    dtype: str


class NamedTensor(Struct, frozen=True):
    """A parameter or buffer of the reference's; a `needless` one may have no place in a submission's model."""

    name: str
    tensor: TensorRef
    needless: bool = False


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
    """Load what will be run: `kind` is submission, eager, compile, null_kernel or the name of a peer."""

    kind: str
    path: bytes
    """The submission's file, or the problem's for all others, as the system has it, which may be no UTF-8."""
    build_cache: str
    check: bool = False
    allowed_ops: list[str] = []
    forbidden_ops: list[str] = []
    kernel_s: float = 20.0
    """How long a kernel of the emulator may go on without an end of one of its blocks."""
    dry: bool = False
    """Whether it is only imported, and nothing is built: a failure then is one on any device."""

    @property
    def file(self) -> Path:
        return Path(os.fsdecode(self.path))


class Build(Struct, frozen=True, tag="build"):
    """Build an extension for `device` in `folder`, with all detectors if `check` says so. The worker runs nothing else,
    before or after: what it builds is for all who ask for it."""

    extension: Extension
    folder: str
    device: str
    check: bool = False
    architecture: str = ""
    """Of the GPU that it is built for, such as 9.0: the worker has none."""


class NotBuilt(Struct, frozen=True):
    """What a compiler says of the extension with that digest; `unsupported` where it is only the emulator's."""

    digest: str
    message: str
    unsupported: bool = False


class Lent(Struct, frozen=True, tag="lent"):
    """What a worker has asked for and could be built lies in its folder for builds; of the rest it builds itself what
    is not named here."""

    refused: list[NotBuilt] = []


class Precompilation(Struct, frozen=True):
    """A model that will be timed later, and the form of its inputs."""

    init: Any
    inputs: list[TensorRef]
    dtype: str
    gradients: bool = False
    """Whether the backward is compiled too."""
    constants: list[Constant] = []
    upstream: str = "contiguous"
    """How a rehearsal's upstream gradients lie, by the names of harness.layouts."""


class Precompile(Struct, frozen=True, tag="precompile"):
    """Compile what will be timed and run it once, on zeros, so that compilers' caches are warm."""

    precompilations: list[Precompilation]


class Rehearse(Struct, frozen=True, tag="rehearse"):
    """Call a submission's model on zeros in the form of later calls, in each mode of theirs, so that kernels which are
    compiled when they are first launched are compiled while it may start compilers. What it raises is no failure."""

    form: Precompilation


class Construct(Struct, frozen=True, tag="construct"):
    """Build the model from constructor arguments (harness.protocol.values) and the reference's state. Models that were
    built before are gone, unless `beside` keeps them."""

    arena: ArenaRef
    init: Any
    state: list[NamedTensor]
    dtype: str
    """The floating dtype that the model's own parameters are converted to; empty leaves them."""
    beside: bool = False
    stands_by: bool = False
    """Whether it is never called, and has whatever weights its constructor gives it."""
    shapes: list[list[int]] = []
    """Of the inputs, said to implementations of ours alone: what was compiled for them serves again."""


class Reweigh(Struct, frozen=True, tag="reweigh"):
    """Give the model that is staged other weights: by its `load_state_dict`, or in place, as an optimizer does, which
    may come after they were moved to other memory, as `Module.to` moves them."""

    arena: ArenaRef
    state: list[NamedTensor]
    how: Reweighing


class Differentiation(Struct, frozen=True):
    """Which outputs are differentiated with respect to which inputs, by position, and to which parameters, by their
    names in the reference."""

    outputs: list[int]
    inputs: list[int]
    parameters: list[str]
    frozen: list[str] = []
    """Other parameters, which need no gradient meanwhile."""


class Stage(Struct, frozen=True, tag="stage"):
    """Lay out the inputs of each buffer, and say what one call does and returns.

    With a `differentiation` the last tensors of a buffer are the upstream gradients of its outputs. `call` is one of

    - `forward`: gives the outputs;
    - `step`: gives outputs and gradients;
    - `backward`: gives gradients; `Prepare` has done the forward;
    - `accumulate`: gives what two backward passes leave in `.grad`, the second with twice the upstream gradients;
    - `interleaved`: as `step`, with a forward of other numbers between its forward and its backward, which comes twice;
    - `overwritten`: as `interleaved`, with zeros written into its outputs before its backward.

    `results` are the forms that the null kernel returns. `alone` says that the reference returns one tensor, not in a
    tuple or list. `train` is the model's mode. `constants` stand between the inputs. `model` counts those that were
    built beside the first. `infers` says that the reference returns inference tensors.
    """

    arena: ArenaRef
    buffers: list[list[TensorRef]]
    results: list[TensorRef]
    alone: bool = False
    call: str = "forward"
    differentiation: Differentiation | None = None
    train: bool = True
    constants: list[Constant] = []
    model: int = 0
    infers: bool = False


class Run(Struct, frozen=True, tag="run"):
    """Call the model once on buffer `buffer`. The worker poisons the outputs' memory before and collects findings."""

    buffer: int
    mode: GradMode = ""
    """Whether autograd records the call; empty for what is staged."""
    rewritten: bool = False
    """Whether the judge wrote other data into the buffer since the last call."""
    keeps: bool = False
    """Whether the outputs stay alive until the model is gone."""
    order: str = "forward"
    order_seed: int = 1
    random_seed: int | None = None
    """Seeds torch's generators before the call; None leaves them."""
    random_state: RandomState = ""
    """Whether the state of the generators before this call is kept, or set back to what was kept."""


class Play(Struct, frozen=True, tag="play"):
    """A timed round: call the model on the buffers that harness.protocol.handshake hands out.

    Calls on the buffers in `warm_up` come first, outside the clock: after a sleep, Python and launches are slow."""

    handshake: int
    """How many handshakes there were before this round."""
    warm_up: list[int]
    lasts_us: float = 0.0
    """How long the device is to be busy, in microseconds, at least; for the null kernel only."""
    captured: list[int] = []
    """The buffers of a captured round: one graph of the calls on them, in this order, is launched in place of calls,
    when the first buffer is handed out. The calls in `warm_up` are graphs then, too."""


class Name(Struct, frozen=True, tag="name"):
    """Describe the outputs of the last round, outside the clock."""


class Prepare(Struct, frozen=True, tag="prepare"):
    """Do the forward of some buffers, outside the clock. A round then runs some of them. Their upstream
    gradients arrive in between."""

    buffers: list[int]


class Capture(Struct, frozen=True, tag="capture"):
    """Make a CUDA graph of the call on each of `buffers`, outside the clock. A captured round then launches some."""

    buffers: list[int]


class TimeDevice(Struct, frozen=True, tag="time_device"):
    """Measure how long the device works on a call, by its own events, with `buffers` once each.

    `method` is `graph`: one CUDA graph of all calls; `graphs`: a graph of each; `queue`: calls launched one by one. The
    calls run once before the first measurement. The answer is a diagnosis and never a score."""

    buffers: list[int]
    method: DeviceTimeMethod
    more: bool
    """Whether the same will be asked again; the worker then keeps its graphs."""


class Release(Struct, frozen=True, tag="release"):
    """Drop outputs, inputs and model, and give memory back."""

    everything: bool = False
    """Also what PyTorch keeps for later where memory is not scarce: others will need it."""


Request = (
    Load
    | Build
    | Lent
    | Precompile
    | Rehearse
    | Construct
    | Reweigh
    | Stage
    | Run
    | Prepare
    | Capture
    | Play
    | Name
    | TimeDevice
    | Release
)

# ------------------------------------------------------------------ replies


class Loaded(Struct, frozen=True, tag="loaded"):
    build_seconds: float = 0.0
    build_cached: bool = True
    built: bool = False
    version: str = ""
    """The package behind a peer and its version."""
    kernels: list[KernelResources] = []


class Wanted(Struct, frozen=True, tag="wanted"):
    """What a submission that is being loaded wants built, and has not. `Lent` answers it."""

    extensions: Annotated[list[Extension], Meta(max_length=MAX_WANTED)]


class Built(Struct, frozen=True, tag="built"):
    """An extension was built, in so many seconds, or `refused` says why it does not."""

    seconds: float = 0.0
    refused: NotBuilt | None = None


class Done(Struct, frozen=True, tag="done"):
    pass


class Ran(Struct, frozen=True, tag="ran"):
    """The outputs of an observed call. `inputs` says where the emulated device's copies of its inputs lie."""

    outputs: list[OutputRef]
    handles: list[str] = []
    """IPC handles (hexadecimal) of the allocations that the outputs lie in."""
    inputs: list[OutputRef] = []
    forbidden: list[str] = []
    findings: list[Finding] = []
    counts: list[KernelCounts] = []


class Played(Struct, frozen=True, tag="played"):
    """Addresses of a round's outputs: one list for each call, in order. Nothing more, since the clock is running.

    `issue_us` is how long all calls but the first took to return: a diagnosis and never a score."""

    addresses: list[list[Natural]]
    issue_us: float


class Named(Struct, frozen=True, tag="named"):
    """The outputs of the last round: one list for each call, in order.

    `device_us` is how long a GPU worked on the calls of the null kernel's rounds; 0 for everything else, whose word is
    no evidence."""

    outputs: list[list[OutputRef]]
    handles: list[str] = []
    forbidden: list[str] = []
    device_us: float = 0.0


class Captured(Struct, frozen=True, tag="captured"):
    """`why` the calls cannot be captured; empty where they are. `outputs` and `handles` say, as in Named, where the
    graphs write that were made now: a round launches some of them, and all can be mapped before."""

    why: str = ""
    outputs: list[list[OutputRef]] = []
    handles: list[str] = []


class DeviceTimed(Struct, frozen=True, tag="device_timed"):
    """`call_us` is the device time of a call, in microseconds, in one pass over the buffers; None where the method
    cannot run the calls. `launches` counts a call's kernels, copies and memory sets, where a graph tells."""

    call_us: float | None = None
    launches: float | None = None


class Failed(Struct, frozen=True, tag="failed"):
    reason: Reason
    message: str
    findings: list[Finding] = []
    places: Annotated[list[Place], Meta(max_length=MAX_PLACES)] = []
    """Lines of the submission that the message is about."""

    def __post_init__(self) -> None:
        """Raises ValueError for another reason, which makes the message a bad one."""
        if self.reason not in FAILURES:
            raise ValueError(f"a worker cannot say '{self.reason}'")


Reply = Loaded | Wanted | Built | Done | Ran | Captured | Played | Named | DeviceTimed | Failed
