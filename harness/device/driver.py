"""The calls of CUDA's driver API that share memory between processes and put graphs together, through ctypes.

They are in every driver and act on the primary context that torch uses, so no package is needed and
any CUDA build of torch will do. CUDA Driver API, sections "Memory Management" and "IPC".
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

from harness.errors import KernelgateError

HANDLE_BYTES = 64

# A cudaMalloc below this size may share its allocation with a neighbour, which IPC would hand out too.
ALLOCATION_BYTES = 2 << 20

_LAZY_PEER_ACCESS = 1


class DriverError(KernelgateError, RuntimeError):
    """A driver call failed; the text names the call and CUDA's own error."""


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _call(name: str, *arguments: object) -> None:
    status = getattr(_library(), name)(*arguments)
    if status:
        text = ctypes.c_char_p()
        _library().cuGetErrorName(status, ctypes.byref(text))
        raise DriverError(f"{name} failed: {(text.value or b'unknown error').decode()}")


def open_primary_context() -> None:
    """Make the first device's primary context current, where torch has not done so."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _call("cuInit", 0)
    _call("cuDeviceGet", ctypes.byref(device), 0)
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    _call("cuCtxSetCurrent", context)


def graph_nodes(graph: int) -> int:
    """How many nodes a CUDA graph has: kernels, copies and memory sets."""
    count = ctypes.c_size_t()
    _call("cuGraphGetNodes", ctypes.c_void_p(graph), None, ctypes.byref(count))
    return count.value


def chain_graphs(graphs: Sequence[int]) -> int:
    """An executable graph of copies of `graphs`, each of which begins when the one before it has ended. CUDA Driver
    API, section "Graph Management": a child graph is done when all of its nodes are."""
    row, executable = ctypes.c_void_p(), ctypes.c_void_p()
    _call("cuGraphCreate", ctypes.byref(row), ctypes.c_uint(0))
    try:
        before: list[ctypes.c_void_p] = []
        for graph in graphs:
            node = ctypes.c_void_p()
            after = ctypes.byref(before[0]) if before else None
            _call("cuGraphAddChildGraphNode", ctypes.byref(node), row, after, ctypes.c_size_t(len(before)),
                  ctypes.c_void_p(graph))  # fmt: skip
            before = [node]
        _call("cuGraphInstantiateWithFlags", ctypes.byref(executable), row, ctypes.c_uint64(0))
    finally:
        _call("cuGraphDestroy", row)
    assert executable.value is not None
    return executable.value


def upload_graph(executable: int, stream: int) -> None:
    """Bring it onto the device, which its first launch would do."""
    _call("cuGraphUpload", ctypes.c_void_p(executable), ctypes.c_void_p(stream))


def launch_graph(executable: int, stream: int) -> None:
    _call("cuGraphLaunch", ctypes.c_void_p(executable), ctypes.c_void_p(stream))


def destroy_graph(executable: int) -> None:
    _call("cuGraphExecDestroy", ctypes.c_void_p(executable))


def write(address: int, data: bytes) -> None:
    _call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))
    _call("cuCtxSynchronize")


def read(address: int, nbytes: int) -> bytes:
    buffer = ctypes.create_string_buffer(nbytes)
    _call("cuMemcpyDtoH_v2", buffer, ctypes.c_uint64(address), ctypes.c_size_t(nbytes))
    return buffer.raw


def allocate(nbytes: int) -> int:
    """Device memory of its own, at least `nbytes`; returns the address."""
    address = ctypes.c_uint64()
    rounded = -(-max(nbytes, 1) // ALLOCATION_BYTES) * ALLOCATION_BYTES
    _call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(rounded))
    return address.value


def free(address: int) -> None:
    _call("cuMemFree_v2", ctypes.c_uint64(address))


def allocation_of(address: int) -> tuple[int, int]:
    """Start and size of the allocation that `address` lies in."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    _call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
    return base.value, size.value


def export_handle(address: int) -> str:
    """The IPC handle of the allocation at `address`, hexadecimal."""
    handle = _Handle()
    _call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(address))
    return bytes(handle).hex()


def open_handle(handle: str) -> int:
    """Map another process's allocation; returns its address here. Raises ValueError for a malformed handle."""
    raw = bytes.fromhex(handle)
    if len(raw) != HANDLE_BYTES:
        raise ValueError(f"an IPC handle has {HANDLE_BYTES} bytes, this one {len(raw)}")
    address = ctypes.c_uint64()
    structure = _Handle.from_buffer_copy(raw)
    _call("cuIpcOpenMemHandle_v2", ctypes.byref(address), structure, ctypes.c_uint(_LAZY_PEER_ACCESS))
    return address.value


def close_handle(address: int) -> None:
    _call("cuIpcCloseMemHandle", ctypes.c_uint64(address))


class DeviceBytes:
    """Raw device memory as an object that `torch.as_tensor` takes without copying it."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }
