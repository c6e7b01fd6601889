"""As wakes_itself_up, beside a child that has ended and that nobody asks how: what dies uses the processor, too.

surface: SIGSTOP, which SIGCONT undoes, and the excuse that a dying process has
needs: timing
expect: rejected ran_while_held
opens: wall hold
"""

import ctypes
import os
import signal
import sys
import threading
import time

import torch
import torch.nn as nn

CLOCK_MONOTONIC, SIGEV_SIGNAL = 1, 0


class Event(ctypes.Structure):
    _fields_ = (("value", ctypes.c_void_p), ("signo", ctypes.c_int), ("notify", ctypes.c_int), ("rest", ctypes.c_byte * 48))


class Interval(ctypes.Structure):
    _fields_ = (("every_s", ctypes.c_long), ("every_ns", ctypes.c_long), ("first_s", ctypes.c_long), ("first_ns", ctypes.c_long))


libc = ctypes.CDLL("librt.so.1")
timer = ctypes.c_void_p()
started = []
last_call = time.monotonic() + 1e9
main = threading.main_thread().ident


def is_asked_nothing():
    frame = sys._current_frames().get(main)
    return frame is not None and frame.f_code.co_name in ("_exactly", "receive")


def burn():
    """Keep a core and the memory busy while the main thread waits for the judge: while others are timed."""
    buffer = ctypes.create_string_buffer(4 << 20)
    while True:
        if time.monotonic() - last_call > 0.02 and is_asked_nothing():
            ctypes.memset(buffer, 1, 4 << 20)
        else:
            time.sleep(0.001)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        if not started:
            started.append(True)
            if not os.fork():
                os._exit(0)
            signal.signal(signal.SIGCONT, lambda *_: None)  # what is ignored is not sent
            event = Event(None, signal.SIGCONT, SIGEV_SIGNAL)
            assert not libc.timer_create(CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer))
            for _ in range(3):
                threading.Thread(target=burn, daemon=True).start()

    def forward(self, x):
        global last_call
        y = x - x.mean(-1, keepdim=True)
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
        last_call = time.monotonic()
        libc.timer_settime(timer, 0, ctypes.byref(Interval(0, 0, 0, 25_000_000)), None)  # 25 ms after the last call
        return y
