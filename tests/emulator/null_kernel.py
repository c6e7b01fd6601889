"""The null kernel, as the judge's clock asks it how long the device worked on a round of its calls."""

from harness.protocol.wire import TensorRef
from harness.worker.implementations import NullKernel


def run(torch):
    """Statements that must all be true."""
    x = torch.randn(64, 128, device="cuda")
    form = TensorRef(0, [64, 128], [128, 1], "float32")
    null = NullKernel([form], x.device)
    before = null.device_us()
    null(x)  # a warm-up, which belongs to no round
    null.begin_round()
    results = [null(x)[0] for _ in range(3)]
    null.end_round()
    torch.cuda.synchronize()
    first = null.device_us()
    null.begin_round()
    for _ in range(300):
        null(x)
    null.end_round()
    torch.cuda.synchronize()
    return {
        "nothing before the first round": before == 0.0,
        "its calls are work": all(torch.equal(result, -x) for result in results),
        "a round takes time": first > 0.0,
        "a round of a hundred times as many calls takes longer": null.device_us() > first,
        "no device on a CPU": NullKernel([form], torch.device("cpu")).device_us() == 0.0,
    }
