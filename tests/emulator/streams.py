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


def gives_rows_between_another_streams(x):
    rows = torch.empty(4, 8, device="cuda")
    rows[0].copy_(x)
    rows[2].copy_(x)
    SIDE.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(SIDE):
        rows[1].fill_(1)
    return rows[::2]


def has_a_backward(x):
    leaf = x.clone().requires_grad_()
    SIDE.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(SIDE):
        y = leaf * 2
    torch.cuda.current_stream().wait_stream(SIDE)
    (gradient,) = torch.autograd.grad(y.sum(), leaf)  # what autograd does for SIDE ends in the current stream
    return gradient


def asks_whether_equal(x):
    y = x * 2
    torch.equal(x, y)  # the host waits for the answer, and for y with it
    with torch.cuda.stream(SIDE):
        z = y * 2
    torch.cuda.current_stream().wait_stream(SIDE)
    return z


def asks_how_many(x):
    y = x * 2
    y.nonzero()  # the host needs their number for the shape
    with torch.cuda.stream(SIDE):
        z = y * 2
    torch.cuda.current_stream().wait_stream(SIDE)
    return z


def takes_any_stream(x):
    side = torch.Stream(device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.cuda.stream(None):
        y = x * 2
    torch.cuda.current_stream().wait_stream(side)
    return y


def gets_memory_that_another_stream_had(x):
    other = torch.cuda.Stream()
    for side in (SIDE, other):
        side.wait_stream(torch.cuda.current_stream())
    for n in range(1500):
        with torch.cuda.stream(other if n % 3 else SIDE):
            x * 2
    for side in (SIDE, other):
        torch.cuda.current_stream().wait_stream(side)
    return x + 1


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


def joins_what_is_not_there_yet(x):
    with torch.cuda.stream(SIDE):
        y = torch.cat([x, x])
    torch.cuda.current_stream().wait_stream(SIDE)
    return y


def picks_by_indices_that_are_not_there_yet(x):
    SIDE.wait_stream(torch.cuda.current_stream())
    indices = torch.arange(4, device="cuda") + 1
    with torch.cuda.stream(SIDE):
        y = x[indices]
    torch.cuda.current_stream().wait_stream(SIDE)
    return y


RIGHT = (
    waits_for_both,
    waits_through_events,
    host_waits,
    asks_for_a_value,
    asks_whether_equal,
    asks_how_many,
    takes_any_stream,
    halves_at_a_time,
    gives_rows_between_another_streams,
    has_a_backward,
    gets_memory_that_another_stream_had,
)
WRONG = (
    does_not_wait_for_the_input,
    nobody_waits_for_the_output,
    waits_too_early,
    still_reads_the_input,
    joins_what_is_not_there_yet,
    picks_by_indices_that_are_not_there_yet,
)


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
