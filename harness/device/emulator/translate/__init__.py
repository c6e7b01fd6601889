"""CUDA C++ to C++: the few constructs a host compiler cannot read, rewritten in place.

The text keeps its lines, so that compilers and debuggers go on speaking of the submission's own.
"""

from harness.device.emulator.translate.source import Kernels, find_kernels, translate

__all__ = ["Kernels", "find_kernels", "translate"]
