"""PyTorch's operators in two streams, with and without what orders them, as a caller of the code would see it."""

import torch

from harness.device import emulator

SIDE = torch.cuda.Stream()


def waits_for_both(x):
    SIDE.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(SIDE):
        y = x * 2
    torch.cuda.current_stream().wait_stream(SIDE)
    y.record_stream(torch.cuda.current_stream())
    return y


def waits_through_events(x):
    begin, end = torch.cuda.Event(), torch.cuda.Event(enable_timing=True)
    begin.record()
    begin.wait(SIDE)
    with torch.cuda.stream(SIDE):
        y = x * 2
        end.record()
    torch.cuda.current_stream().wait_event(end)
    return y + 1


def host_waits(x):
    torch.cuda.synchronize()
    with torch.cuda.stream(SIDE):
        y = x * 2
    SIDE.synchronize()
    return y


def asks_for_a_value(x):
    SIDE.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(SIDE):
        y = x * 2
        y.sum().item()  # the host waits for the stream that gives it a number
    return y


def halves_at_a_time(x):
    y = torch.empty_like(x)
    SIDE.wait_stream(torch.cuda.current_stream())
    torch.mul(x[:4], 2, out=y[:4])
    with torch.cuda.stream(SIDE):
        torch.mul(x[4:], 2, out=y[4:])
    torch.cuda.current_stream().wait_stream(SIDE)
    return y


def has_a_backward(x):
    leaf = x.clone().requires_grad_()
    SIDE.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(SIDE):
        y = leaf * 2
    torch.cuda.current_stream().wait_stream(SIDE)
    (gradient,) = torch.autograd.grad(y.sum(), leaf)  # what autograd does for SIDE ends in the current stream
    return gradient


def does_not_wait_for_the_input(x):
    with torch.cuda.stream(SIDE):
        y = x * 2
    torch.cuda.current_stream().wait_stream(SIDE)
    return y


def nobody_waits_for_the_output(x):
    SIDE.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(SIDE):
        return x * 2


def waits_too_early(x):
    SIDE.wait_stream(torch.cuda.current_stream())
    torch.cuda.current_stream().wait_stream(SIDE)
    with torch.cuda.stream(SIDE):
        y = x * 2
    return y + 1


def still_reads_the_input(x):
    SIDE.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(SIDE):
        x.sum()
    return x + 1


RIGHT = (waits_for_both, waits_through_events, host_waits, asks_for_a_value, halves_at_a_time, has_a_backward)
WRONG = (does_not_wait_for_the_input, nobody_waits_for_the_output, waits_too_early, still_reads_the_input)


def run(torch):
    """For each function what was found when it was called as the judge calls it: kind and message."""
    seen = {}
    for function in (*RIGHT, *WRONG):
        x = torch.arange(8.0, device="cuda")
        torch.cuda.synchronize()
        emulator.caller_writes([x])
        try:
            emulator.caller_reads([function(x)])
            emulator.caller_writes([x])
        except RuntimeError as error:
            assert "CUDA emulator: " in str(error), error
        torch.cuda.synchronize()
        seen[function.__name__] = [[f.kind, f.message] for f in emulator.take_findings()]
    return {"right": [f.__name__ for f in RIGHT], "wrong": [f.__name__ for f in WRONG], "seen": seen}
