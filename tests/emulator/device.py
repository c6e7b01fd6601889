"""What torch says about the emulated device, without any kernel."""

from pathlib import Path

from torch.library import Library


def _marked(torch) -> bool:
    with torch.cuda.nvtx.range("rows"):
        torch.cuda.nvtx.mark("here")
    return True


def _computed_again(torch, x) -> bool:
    from torch.utils.checkpoint import checkpoint

    given = x.clone().requires_grad_()
    checkpoint(lambda t: torch.nn.functional.dropout(t, 0.5), given, use_reentrant=False).sum().backward()
    return set(given.grad.unique().tolist()) <= {0.0, 2.0}


def _compiled_by_nobody(torch, x) -> bool:
    return torch.equal(torch.compiler.disable(lambda t: t + 1)(x).cpu(), x.cpu() + 1)


def _message(call):
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return "nothing was raised"


def _overrides(torch, key):
    """Replaces native_layer_norm for one dispatch key and tells whether a layer norm meets it."""
    library = Library("aten", "IMPL")

    def forbidden(*_arguments):
        raise RuntimeError("called")

    library.impl("native_layer_norm", forbidden, key)
    x = torch.ones(2, 8, device="cuda")
    message = _message(lambda: torch.native_layer_norm(x, [8], None, None, 1e-5))
    library._destroy()
    return message


def _depthwise(torch, dimensions):
    """Whether a convolution of as many groups as channels and its gradients are the CPU's."""
    convolve = getattr(torch.nn.functional, f"conv{dimensions}d")
    given = [torch.randn(2, 3, *[7] * dimensions), torch.randn(6, 1, *[3] * dimensions), torch.randn(6)]
    results = []
    for where in ("cpu", "cuda"):
        inputs = [tensor.detach().to(where).requires_grad_() for tensor in given]
        y = convolve(*inputs, stride=2, padding=1, groups=3)
        (y * y).sum().backward()
        results.append([tensor.detach().cpu() for tensor in (y, *(i.grad for i in inputs))])
    return all(torch.allclose(a, b, atol=1e-4) for a, b in zip(*results, strict=True))


def run(torch):
    """Statements that must all be true, and texts that the test reads."""
    x = torch.randn(6, 8).cuda()
    base = torch.zeros(65, device="cuda")
    weight = torch.ones(8, device="cuda", requires_grad=True)
    (x * weight).sum().backward()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        drawn = torch.randn(5, device="cuda")
        torch.manual_seed(3)
        again = torch.randn(5, device="cuda")
    layer = torch.nn.Linear(8, 3).cuda()
    image = torch.nn.Conv2d(3, 4, 3).cuda()(torch.randn(1, 3, 9, 9, device="cuda"))
    side, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
    begin = torch.cuda.current_stream().record_event()
    with torch.cuda.stream(side):
        inside = torch.cuda.current_stream()
        end.record()
    out = torch.empty(0, device="cuda")
    torch.add(x, 1, out=out)
    return {
        "true": {
            "streams": inside == side != torch.cuda.current_stream() and side.cuda_stream != 0 and side.query(),
            "a stream has its handle": torch.cuda.ExternalStream(side.cuda_stream) == side,
            "the default stream": torch.cuda.current_stream() == torch.cuda.default_stream()
            and torch.cuda.current_stream().cuda_stream == 0,
            "priorities": torch.cuda.Stream.priority_range() == (0, 0),
            "an event has its handle": end.cuda_event != 0,
            "times need two records": "must be recorded" in _message(lambda: begin.elapsed_time(torch.cuda.Event())),
            "events": end.query() and begin.elapsed_time(end) >= 0,
            "is_cuda": x.is_cuda and x.device == torch.device("cuda", 0),
            "is_available": torch.cuda.is_available() and torch.cuda.device_count() == 1,
            "views share memory": x[2:].data_ptr() == x.data_ptr() + 2 * 8 * 4,
            "a view may be misaligned": base[1:].data_ptr() % 16 == 4,
            "allocations are aligned": base.data_ptr() % 32 == 0,
            "matmul": torch.allclose((x @ x.T).cpu(), x.cpu() @ x.cpu().T, atol=1e-5),
            "linear": layer(x).is_cuda and layer.weight.is_cuda,
            "convolution": image.shape == (1, 4, 7, 7) and image.is_cuda,
            "depthwise convolution": _depthwise(torch, 2) and _depthwise(torch, 3),
            "reduction": x.mean().item() == x.cpu().mean().item(),
            "autograd": torch.allclose(weight.grad.cpu(), x.cpu().sum(0), atol=1e-5),
            "seeds": torch.equal(drawn, again),
            "out= grows on the device": out.is_cuda and torch.equal(out.cpu(), x.cpu() + 1),
            "fresh memory is no number": bool(torch.empty(64, device="cuda").isnan().all()),
            "half": x.half().dtype == torch.float16 and x.half().is_cuda,
            "index": torch.equal(x[torch.tensor([1, 3])].cpu(), x.cpu()[[1, 3]]),
            "an extension's libraries are there": "/libemu_python.so\n" in Path("/proc/self/maps").read_text(),
            "memory counts": torch.cuda.memory_allocated() > 0,
            "marks for a profiler": _marked(torch),
            "what is computed again in a backward": _computed_again(torch, x),
            "what needs torch._dynamo": _compiled_by_nobody(torch, x),
        },
        "override on CUDA": _overrides(torch, "CUDA"),
        "override on CPU through the fallback": _overrides(torch, "CPU"),
        "mixed devices": _message(lambda: x + torch.ones(8)),
        "second device": "refused" if "invalid device" in _message(lambda: torch.ones(2, device="cuda:1")) else "no",
    }
