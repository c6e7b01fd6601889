"""`fused_layer_norm` outside of the judge: in torch.compile, under autocast, and with gradients that add up."""

import importlib.util
from pathlib import Path

FILE = Path(__file__).resolve().parents[2] / "submissions" / "layernorm_train" / "fused_function.py"


def load():
    """The submission's module, built on the emulated device."""
    spec = importlib.util.spec_from_file_location("fused", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stand_in_for_cuda(torch):
    """What Dynamo asks a CUDA build of torch for, and the emulator has no reason to offer."""
    torch._C._cuda_getCurrentRawStream = lambda device: 0
    torch._C._cuda_getDevice = lambda: 0
    torch._C._cuda_exchangeDevice = torch._C._cuda_maybeExchangeDevice = lambda device: 0
    torch.cuda.get_rng_state = lambda device=None: torch.get_rng_state()
    torch.cuda.set_rng_state = lambda state, device=None: torch.set_rng_state(state)


def gradients(torch, function, tensors):
    """The output and the gradients of a sum of squares, on the CPU."""
    for tensor in tensors:
        tensor.grad = None
    y = function(*tensors, 1e-5)
    y.square().sum().backward()
    return [y.detach().cpu(), *(tensor.grad.cpu() for tensor in tensors)]


def run(torch):
    """Facts for test_training.py."""
    fused = load().fused_layer_norm
    tensors = [torch.randn(shape, device="cuda").requires_grad_() for shape in ((6, 40), (40,), (40,))]
    plain = gradients(torch, fused, tensors)
    reference = gradients(torch, lambda x, w, b, eps: torch.nn.functional.layer_norm(x, (40,), w, b, eps), tensors)

    stand_in_for_cuda(torch)
    compiled = gradients(torch, torch.compile(fused, backend="aot_eager", fullgraph=True), tensors)
    operator = torch.ops.fused_layer_norm.forward.default
    arguments = (*(tensor.detach() for tensor in tensors), 1e-5)
    torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))

    half = tensors[0].detach().half().requires_grad_()
    with torch.autocast("cuda", dtype=torch.float16):
        y = fused(half, *tensors[1:], 1e-5)
    y.sum().backward()
    wrong = ""
    try:
        fused(tensors[0], tensors[1].detach()[:7], tensors[2].detach()[:7], 1e-5)
    except RuntimeError as error:
        wrong = str(error).splitlines()[0]
    return {
        "error": max(float((a - b).detach().abs().max()) for a, b in zip(plain, reference, strict=True)),
        "compiled_is_plain": all(torch.equal(a, b) for a, b in zip(plain, compiled, strict=True)),
        "autocast": [str(y.dtype), str(half.grad.dtype)],
        "wrong_shape": wrong,
    }
