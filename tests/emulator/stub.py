"""The stub, as the judge's clock asks it how long the device worked on a round of its calls."""

from harness.protocol.wire import TensorRef
from harness.worker.implementations import Stub


def run(torch):
    """Statements that must all be true."""
    x = torch.randn(64, 128, device="cuda")
    form = TensorRef(0, [64, 128], [128, 1], "float32")
    stub = Stub([form], x.device)
    before = stub.device_us()
    stub(x)  # a warm-up, which belongs to no round
    stub.begin_round()
    results = [stub(x)[0] for _ in range(3)]
    stub.end_round()
    torch.cuda.synchronize()
    first = stub.device_us()
    stub.begin_round()
    for _ in range(300):
        stub(x)
    stub.end_round()
    torch.cuda.synchronize()
    return {
        "nothing before the first round": before == 0.0,
        "its calls are work": all(torch.equal(result, -x) for result in results),
        "a round takes time": first > 0.0,
        "a round of a hundred times as many calls takes longer": stub.device_us() > first,
        "no device on a CPU": Stub([form], torch.device("cpu")).device_us() == 0.0,
    }
