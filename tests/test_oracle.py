"""The tolerance accepts what an honest implementation reaches and rejects shortcuts."""

import contextlib
import subprocess
import sys
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch

from harness import oracle
from harness.device.host import HostDevice
from harness.device.memory_file import MemoryFile
from harness.errors import SubmissionError, UsageError
from harness.oracle import pieces
from harness.oracle.draw import draw_case, forms_of
from harness.oracle.form import check_apart, check_form, check_strides
from harness.paths import PROBLEMS, ROOT
from harness.problem import load_problem
from harness.protocol.wire import OutputRef
from harness.timing.part import Part
from tests.helpers import run_eval

PROBLEM = load_problem(PROBLEMS / "layernorm.py", random_seed=1)
CPU = torch.device("cpu")


def drawn(name):
    case = next(case for case in PROBLEM.cases if case.name == name).on("cpu")
    model = PROBLEM.build_model(case, 1, CPU)
    inputs = PROBLEM.draw_inputs(case, 2, CPU)
    return model, inputs, oracle.expect(model, inputs, 3)[0]


def one_pass(model, x):
    ln = model.ln
    dims = tuple(range(x.dim() - len(ln.normalized_shape), x.dim()))
    mean = x.mean(dims, keepdim=True)
    variance = x.square().mean(dims, keepdim=True) - mean.square()
    return (x - mean) * torch.rsqrt(variance + ln.eps) * ln.weight + ln.bias


@pytest.mark.parametrize("case", [case.name for case in PROBLEM.cases])
def test_the_reference_passes_every_case(case):
    model, inputs, expected = drawn(case)
    with torch.no_grad():
        assert oracle.compare(model(*inputs), expected).ok


@pytest.mark.parametrize("case", ["N(1e4, 1)", "N(1000, 0.1)", "long row, N(1e4, 1)", "8192x1024"])
def test_one_pass_variance_fails_on_large_means(case):
    model, inputs, expected = drawn(case)
    with torch.no_grad():
        comparison = oracle.compare(one_pass(model, *inputs), expected)
    assert not comparison.ok
    assert comparison.error > 10 * expected.reference_error


def test_the_tolerance_does_not_depend_on_how_accurate_the_reference_is_here():
    """A reference that computes in float64 inside, as accurate as can be, gets the same tolerance."""

    class Accurate(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model.double()(x.double()).to(x.dtype)

    model, inputs, expected = drawn("16x1024")
    accurate = oracle.expect(Accurate(model), inputs, 3)[0]
    assert accurate.tolerance == pytest.approx(expected.tolerance, rel=0.1)


def single(values, tolerance=0.1):
    exact = torch.tensor(values, dtype=torch.float64)
    return oracle.Expected(exact, oracle.Form((len(values),), (1,), torch.float32), tolerance, 0.01)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("got", "wanted", "ok"),
    [
        ([1.0, 2.0], [1.05, 2.0], True),
        ([1.0, 2.2], [1.0, 2.0], False),
        ([NAN, 1.0], [NAN, 1.0], True),
        ([NAN, 1.0], [0.0, 1.0], False),
        ([0.0, 1.0], [NAN, 1.0], False),
        ([INF, 1.0], [INF, 1.0], True),
        ([-INF, 1.0], [INF, 1.0], False),
        ([3e38, 1.0], [INF, 1.0], False),
    ],
)
def test_non_finite_elements_must_stand_where_the_oracle_has_them(got, wanted, ok):
    assert oracle.compare(torch.tensor(got), single(wanted)).ok is ok


def test_a_failure_names_the_worst_element():
    comparison = oracle.compare(torch.tensor([1.0, 5.0, 2.5]), single([1.0, 2.0, 2.0]))
    assert (comparison.worst_index, comparison.got, comparison.expected) == ((1,), 5.0, 2.0)
    assert "2 of 3 elements" in comparison.message


RIGHT_FORM = OutputRef(4096, [2, 3], [3, 1], "float32", "cpu", "torch.Tensor")


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ([], "gave 0 tensors; the reference gives 1"),
        ([RIGHT_FORM, RIGHT_FORM], "gave 2 tensors"),
        ([msgspec.structs.replace(RIGHT_FORM, type="torch.nn.Parameter")], "type of y is torch.nn.Parameter"),
        ([msgspec.structs.replace(RIGHT_FORM, device="cuda")], "device of y is cuda; expected cpu"),
        ([msgspec.structs.replace(RIGHT_FORM, dtype="float64")], "dtype of y is float64"),
        ([msgspec.structs.replace(RIGHT_FORM, shape=[3, 2])], "shape of y is \\(3, 2\\)"),
        ([msgspec.structs.replace(RIGHT_FORM, stride=[1, 2])], "strides of y are \\(1, 2\\)"),
        ([msgspec.structs.replace(RIGHT_FORM, stride=[3])], "strides of y are"),
    ],
)
def test_an_output_of_another_form_is_refused_and_the_sentence_says_what_was_found(found, sentence):
    forms = [oracle.Form((2, 3), (3, 1), torch.float32, "y")]
    check_form([RIGHT_FORM], forms, "cpu", emulated=False)
    with pytest.raises(SubmissionError, match=sentence):
        check_form(found, forms, "cpu", emulated=False)


def test_strides_may_be_looked_at_later_unless_they_reach_beyond_the_elements():
    forms = [oracle.Form((2, 3), (3, 1), torch.float32, "y")]
    transposed = [msgspec.structs.replace(RIGHT_FORM, stride=[1, 2])]
    check_form(transposed, forms, "cpu", emulated=False, strides=False)
    with pytest.raises(SubmissionError, match="strides of y"):
        check_strides(transposed, forms)
    for stride in ([4, 1], [-3, 1], [2**40, 1], [1]):
        with pytest.raises(SubmissionError, match="strides of y"):
            check_form(
                [msgspec.structs.replace(RIGHT_FORM, stride=stride)], forms, "cpu", emulated=False, strides=False
            )


@pytest.mark.parametrize(("second", "together"), [(0, True), (8, True), (24, False)])
def test_outputs_must_not_share_memory_where_the_references_do_not(second, together):
    outputs = [RIGHT_FORM, msgspec.structs.replace(RIGHT_FORM, address=RIGHT_FORM.address + second)]
    forms = [oracle.Form((2, 3), (3, 1), torch.float32, name) for name in ("y", "z")]
    check_apart(outputs, [replace(form, shares=True) for form in forms])
    with pytest.raises(SubmissionError, match="y and z share memory") if together else contextlib.nullcontext():
        check_apart(outputs, forms)


class Twice(torch.nn.Module):
    def __init__(self, together):
        super().__init__()
        self.together = together

    def forward(self, x):
        y = x + 1
        return x * 2, y, (y if self.together else x + 1)


@pytest.mark.parametrize("together", [True, False])
def test_outputs_that_a_reference_returns_twice_are_known(together):
    expected = oracle.expect(Twice(together), [torch.randn(4, 3)], 1)
    assert [e.form.shares for e in expected] == [False, together, together]


def test_outputs_on_the_emulator_say_that_they_lie_on_cuda():
    forms = [oracle.Form((2, 3), (3, 1), torch.float32, "y")]
    check_form([msgspec.structs.replace(RIGHT_FORM, device="cuda")], forms, "cpu", emulated=True)
    with pytest.raises(SubmissionError, match="expected cuda"):
        check_form([RIGHT_FORM], forms, "cpu", emulated=True)


def test_strides_of_dimensions_that_place_nothing_are_free():
    assert oracle.same_strides((4, 1, 8), (8, 99, 1), (8, 8, 1))
    assert not oracle.same_strides((4, 2, 8), (16, 1, 2), (16, 8, 1))
    assert oracle.same_strides((0, 8), (1, 1), (8, 1))


@pytest.mark.parametrize(("step", "ok"), [(1, True), (16, False), (64, False)])
def test_sixteen_bits_do_not_excuse_statistics_of_a_sample(step, ok):
    """The output is as coarse as its dtype, and nothing else is: sums are kept in float32."""
    model = torch.nn.LayerNorm(4096).bfloat16()
    x = torch.randn(64, 4096, generator=torch.Generator().manual_seed(1)).bfloat16()
    sample = x.float()[:, ::step]
    mean, variance = sample.mean(-1, keepdim=True), sample.var(-1, keepdim=True, unbiased=False)
    got = ((x.float() - mean) * torch.rsqrt(variance + 1e-5)).bfloat16()
    assert oracle.compare(got, oracle.expect(model, [x], seed=1)[0]).ok is ok


def test_a_product_whose_terms_are_added_one_after_the_other_is_right():
    """As kernels do; a CPU's own sums are in blocks and much closer. Rounding the factors to 11 bits, as TF32 does,
    is wrong all the same."""
    draw = torch.Generator().manual_seed(3)
    x, model = torch.randn(64, 1 << 16, generator=draw), torch.nn.Linear(1 << 16, 64, bias=False)
    (expected,) = oracle.expect(model, [x], 0)
    a, b = x.numpy(), model.weight.detach().numpy()
    y = np.zeros((64, 64), dtype=np.float32)
    for k in range(a.shape[1]):
        y += np.multiply.outer(a[:, k], b[:, k])
    assert oracle.compare(torch.from_numpy(y), expected).ok
    coarse = [torch.from_numpy((v.view(np.int32) + 0x1000 & ~0x1FFF).view(np.float32)) for v in (a.copy(), b.copy())]
    assert not oracle.compare(coarse[0] @ coarse[1].T, expected).ok


def added(x, how=lambda terms, **kw: np.cumsum(terms, **kw)[..., -1]):
    """The last dimension's elements added one after the other in float32."""
    return how(x, axis=-1, dtype=np.float32)


def attention(x):
    scores = added(x[:, None] * x) * np.float32(x.shape[1] ** -0.5)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return added(weights[:, None] * x.T) / added(weights)[:, None]


SUMS = {
    "a product": (lambda x: x @ x.t(), lambda x: added(x[:, None] * x)),
    "a sum": (lambda x: x.sum(1), added),
    "a mean": (lambda x: x.mean(1), lambda x: added(x) / np.float32(x.shape[1])),
    "a running sum": (lambda x: x.flip(1).cumsum(1).flip(1), lambda x: added(x[:, ::-1], np.cumsum)[:, ::-1]),
    "a loss": (
        lambda x: torch.nn.functional.mse_loss(x, x + 1),
        lambda x: added((x - (x + 1)) ** 2).mean() / x.shape[1],
    ),
    "attention": (
        lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])[0],
        lambda x: attention(x),
    ),
}


def test_a_single_element_gets_no_small_tolerance_by_chance():
    class Model(torch.nn.Module):
        def forward(self, x):
            return x.logsumexp(0)

    x = 3 + torch.rand(37, generator=torch.Generator().manual_seed(1))
    expected = [oracle.expect(Model(), [x], seed)[0] for seed in range(100)]
    of_the_result = 4 * 4 * torch.finfo(torch.float32).eps * abs(expected[0].values.item())
    of_the_data = [e.tolerance - of_the_result for e in expected]
    assert min(of_the_data) > max(of_the_data) / 10


def test_a_small_difference_of_products_gets_no_small_tolerance_by_chance():
    """Nothing is added up there, and the signs of a single perturbation cancel in every third case."""

    class Model(torch.nn.Module):
        def forward(self, x):
            return x[0] * x[1] - x[2] * x[3]

    draw = torch.Generator().manual_seed(3)
    for seed in range(60):
        x = 2 + torch.rand(4, generator=draw)
        x[3] = x[0] * x[1] / x[2] * (1 + 1e-3 * torch.rand((), generator=draw))
        assert oracle.compare(Model()(x), oracle.expect(Model(), [x], seed)[0]).ok


@pytest.mark.parametrize("what", SUMS)
def test_terms_of_one_sign_may_be_added_one_after_the_other(what):
    """As kernels do. U(0, 1), as KernelBench draws: what a sum is rounded by grows with it."""
    reference, kernel = SUMS[what]
    x = torch.rand(6, 1 << 15, generator=torch.Generator().manual_seed(5))
    model = type("Model", (torch.nn.Module,), {"forward": lambda _self, x: reference(x)})()
    (expected,) = oracle.expect(model, [x], 0)
    y = torch.from_numpy(np.ascontiguousarray(kernel(x.numpy()), dtype=np.float32))
    assert oracle.compare(y, expected).ok
    assert not oracle.compare(y * (1 + 2e-4), expected).ok


def test_many_elements_are_gone_through_in_pieces(monkeypatch):
    """With the same result, wherever the worst one is and however the tensor lies."""
    draw = torch.Generator().manual_seed(5)
    x = torch.randn(33, 70, 3, generator=draw).transpose(0, 1)
    models = {
        "exp": lambda x: torch.exp(x).transpose(0, 2),
        "itself": lambda x: x,
        "one": lambda x: x.amax(),
        "running sum": lambda x: x.cumsum(1),
    }
    for name, forward in models.items():
        model = type(name, (torch.nn.Module,), {"forward": lambda _self, x, f=forward: f(x)})()
        found = []
        for size in (1 << 24, 100):
            monkeypatch.setattr(pieces, "PIECE_ELEMENTS", size)
            (expected,) = oracle.expect(model, [x], 3)
            right = model(x)
            places = torch.arange(right.numel()).reshape(right.shape)
            wrong = right + torch.where(places % 7 == 0, places.sqrt(), 0.0) + 0.5
            assert oracle.compare(right, expected).ok
            assert torch.equal(expected.values, model(x.double()))
            found.append((oracle.compare(wrong, expected), expected.tolerance))
        (whole, tolerance), (in_pieces, tolerance_in_pieces) = found
        assert replace(whole, message="") == replace(in_pieces, message="")  # which has the tolerance
        assert not whole.ok
        assert tolerance_in_pieces == pytest.approx(tolerance, rel=0.2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 3, 200])
def test_rows_of_a_few_elements_with_large_means_are_no_trap(rows, dtype):
    """Two elements come out as ±1 however they are changed, and are off all the same when their mean was rounded; a sum
    that is rounded to 16 bits before it is normalised moves their difference, and a change does only by chance."""

    class Sum(torch.nn.Module):
        def __init__(self, norm):
            super().__init__()
            self.norm = norm

        def forward(self, x):
            return self.norm(x + 1)

    draw = torch.Generator().manual_seed(7)
    for seed in range(60):
        width = 2 + seed % 3
        x = torch.randn(rows, width, generator=draw) * torch.randn(rows, 1, generator=draw).exp()
        x = (x + 10 * torch.randn(rows, 1, generator=draw)).to(dtype)
        model = Sum(torch.nn.LayerNorm(width)).to(dtype)
        (expected,) = oracle.expect(model, [x], seed)
        with torch.no_grad():
            assert oracle.compare(model(x), expected).ok
            if rows == 200 and dtype is torch.float32:
                mean = (x + 1).mean(-1, keepdim=True)
                variance = ((x + 1).square().mean(-1, keepdim=True) - mean.square()).clamp_min(0)
                assert not oracle.compare((x + 1 - mean) * torch.rsqrt(variance + 1e-5), expected).ok


def test_integers_and_booleans_have_to_be_equal():
    """However many elements are so near each other that rounding would decide which is the largest."""

    class Places(torch.nn.Module):
        def forward(self, x):
            return x.argmax(1), x > 0.5

    x = torch.rand(64, 1 << 14, generator=torch.Generator().manual_seed(5))
    x[:, 7] = x[:, 5] = 2.0
    expected = oracle.expect(Places(), [x], 0)
    assert [oracle.compare(y, e).ok for y, e in zip(Places()(x), expected, strict=True)] == [True, True]
    comparison = oracle.compare(torch.full((64,), 7), expected[0])
    assert "64 of 64 elements of output 0 are not equal" in comparison.message
    assert not oracle.compare(x > 0.50001, expected[1]).ok


@pytest.mark.parametrize(
    ("dtype", "fill"), [(torch.float32, -1e9), (torch.float32, -12345678.9), (torch.bfloat16, -1e9)]
)
def test_elements_beside_large_constants_have_to_be_right(dtype, fill):
    """As those that a mask leaves; and the constants are what the dtype makes of them, or next to it."""
    fill_in = torch.nn.Module()
    fill_in.forward = lambda x: x.masked_fill(x > 0, fill)
    x = torch.randn(64, 128, generator=torch.Generator().manual_seed(5)).to(dtype)
    (expected,) = oracle.expect(fill_in, [x], 0)
    right, masked = fill_in(x), x > 0
    assert oracle.compare(right, expected).ok
    for of_mask, of_others, ok in [
        (right, 0 * x, False),
        (right, 1.25 * x, False),
        (torch.nextafter(right, 2 * right), x, True),
        (1.125 * right, x, False),
    ]:
        assert oracle.compare(torch.where(masked, of_mask, of_others), expected).ok is ok
    (known,) = oracle.expect_more(fill_in, [x], 0, [expected.form])
    assert known.tolerance == expected.tolerance and torch.equal(known.values, expected.values)


def test_constants_of_an_output_that_leaves_nothing_unseen_count():
    both = torch.nn.Module()
    both.forward = lambda x: (x.masked_fill(x > 0, -1e9), torch.where(x > 0, 8.0, x))
    masked, other = oracle.expect(both, [torch.randn(64, 128, generator=torch.Generator().manual_seed(5))], 0)
    eps = torch.finfo(torch.float32).eps
    assert other.tolerance >= 4 * 4 * eps * 8.0 > masked.tolerance


def test_judging_does_not_load_what_takes_seconds():
    """PyTorch's compiler and SciPy, which an evaluation would wait for."""
    program = """
import sys, torch
from harness.judge import Judge
from harness import oracle
from harness.timing import stats
oracle.expect(torch.nn.LayerNorm(8).bfloat16(), [torch.randn(2, 8).bfloat16()], 0)
stats.median_interval(list(range(9)))
print({"torch._dynamo", "scipy"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [((4, 1), r"\(4, 1\)\. Return it as \.contiguous\(\) gives it\.$"), ((8, 1), r"the reference's are \(8, 1\)\.$")],
    ids=["contiguous", "with gaps"],
)
def test_other_strides_are_named_with_how_to_get_the_references(wanted, said):
    given = OutputRef(address=0, shape=[3, 4], stride=[1, 3], dtype="float32", device="cpu", type="torch.Tensor")
    with pytest.raises(SubmissionError, match=said):
        check_form([given], [oracle.Form((3, 4), wanted, torch.float32)], "cpu", emulated=False)


@pytest.mark.parametrize(
    ("forward", "zeros"),
    [
        ("x * self.weight", True),
        ("x / self.weight", False),
        ("x @ torch.linalg.inv(torch.diag(self.weight))", False),
    ],
)
def test_other_weights_of_a_step_have_zeros_where_the_reference_can_do_with_them(forward, zeros, tmp_path):
    path = tmp_path / "scaled.py"
    path.write_text(
        "import torch\nfrom torch import nn\n\nclass Model(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.weight = nn.Parameter(torch.ones(24))\n\n"
        f"    def forward(self, x):\n        return {forward}\n\n"
        "GRADIENTS = True\nCASES = [dict(name='a', shapes=[(16, 24)])]\n"
    )
    problem = load_problem(path, 0)
    further = draw_case(problem, problem.cases[0], HostDevice("cpu", MemoryFile()), seed=1).further
    assert further.weights.zeros == zeros
    assert int((further.weights.reference.state["weight"] == 0).sum()) == zeros


def tolerances(tmp_path, more=""):
    """Those of a step on one case, as the judge draws it and as timing draws its own data."""
    path = tmp_path / "rmsnorm_train.py"
    path.write_text((PROBLEMS / "rmsnorm_train.py").read_text() + more)
    problem = load_problem(path, 0)
    case = min((c for c in problem.cases if min(c.shapes[0]) > 1), key=lambda c: c.shapes[0])
    drawn = draw_case(problem, case, HostDevice("cpu", MemoryFile()), seed=1)
    _, timed = Part(forms_of(drawn), "step", case.name).draw(problem, 1, 0, CPU)
    return [e.tolerance for e in drawn.expected], [e.tolerance for e in timed]


def test_a_problems_own_factor_counts_for_outputs_and_gradients_judged_and_timed(tmp_path):
    usual, stricter = tolerances(tmp_path), tolerances(tmp_path, "\nTOLERANCE_FACTOR = 1\n")
    assert tolerances(tmp_path, "\nTOLERANCE_FACTOR = 4\n") == usual
    assert [[t / 4 for t in some] for some in usual] == list(stricter)
    assert all(t > 0 for some in stricter for t in some)


def test_a_stricter_problem_rejects_what_others_accept():
    model, inputs, expected = drawn("16x1024")
    off = expected.values + 0.5 * expected.tolerance
    (stricter,) = oracle.expect(model, inputs, 3, factor=1.0)
    assert torch.equal(stricter.values, expected.values)
    assert oracle.compare(off, expected).ok
    assert not oracle.compare(off, stricter).ok


@pytest.mark.parametrize("name", ["bias_gelu_train", "layernorm_train_dtypes"])
def test_a_step_in_16_bits_has_room_for_eager(name):
    """Four times its error, as docs/judging.md says. Not so what LayerNorm's parameters get, which a CPU adds up in 16
    bits."""
    problem = load_problem(PROBLEMS / f"{name}.py", 0)
    shares = {}
    for case in (c for c in problem.cases if c.dtype.itemsize == 2):
        for expected in draw_case(problem, case, HostDevice("cpu", MemoryFile()), seed=1).expected:
            if expected.values.numel() and "'ln." not in expected.form.name:
                shares[case.name, expected.form.name] = expected.reference_error / expected.tolerance
    assert len(shares) > 30
    assert {named: share for named, share in shares.items() if share > 0.25} == {}


class InFloat32(torch.nn.Module):
    """What is rounded to 16 bits in between, and what is not, shows in its operators alone."""

    def __init__(self, between):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, 64))
        self.between = between

    def forward(self, x):
        return (x.to(self.between) * 1.1).float() * self.weight


@pytest.mark.parametrize("between, ok", [(torch.float32, False), (torch.bfloat16, True)])
def test_a_result_of_fp32_may_be_rounded_where_the_reference_rounds(between, ok):
    """And nowhere else, where 16 bits and fp32 stand beside each other."""
    model, x = InFloat32(between), torch.randn(32, 64, generator=torch.Generator().manual_seed(5)).bfloat16()
    (expected,) = oracle.expect(model, [x], 3)
    assert expected.form.dtype == torch.float32
    weight = model.weight.detach()
    assert oracle.compare((x.float() * 1.1) * weight, expected).ok
    assert oracle.compare((x * 1.1).float() * weight, expected).ok == ok


def test_forms_that_are_known_get_the_tolerance_of_what_is_drawn():
    """With fp32 beside 16 bits the reference runs in its own types for that; it leaves what it is given as it was."""
    model, x = InFloat32(torch.float32), torch.randn(32, 64).bfloat16()
    given = x.clone()
    (drawn_one,) = oracle.expect(model, [x], 3)
    (known,) = oracle.expect_more(model, [x], 3, [drawn_one.form])
    assert known.tolerance == drawn_one.tolerance
    assert torch.equal(x, given)


class Autocast(torch.nn.Module):
    """fp32 goes in and comes out, and between them are 16 bits."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(256, 64)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x).float().softmax(-1)


def test_a_reference_under_autocast_may_be_computed_as_it_is_and_in_fp32():
    torch.manual_seed(7)
    model, x = Autocast(), torch.randn(64, 256)
    (expected,) = oracle.expect(model, [x], 3)
    (known,) = oracle.expect_more(model, [x], 3, [expected.form])
    assert known.tolerance == expected.tolerance
    assert expected.reference_error < 0.5 * expected.tolerance
    with torch.no_grad():
        assert oracle.compare(model.linear(x).softmax(-1), expected).ok
        assert not oracle.compare(model.linear(x[:, :128].repeat(1, 2)).softmax(-1), expected).ok


class CastBetween(torch.nn.Module):
    """As Llama's RMSNorm: what is normalised in fp32 is cast to 16 bits before an fp32 weight makes it fp32 again."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, 256))

    def forward(self, x):
        wide = x.to(self.weight.dtype)
        return self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def test_where_a_reference_casts_to_16_bits_in_between_its_own_rounding_passes_and_none_does():
    model, x = CastBetween(), torch.randn(64, 256, generator=torch.Generator().manual_seed(5)).bfloat16()
    (expected,) = oracle.expect(model, [x], 3)
    assert expected.form.dtype == torch.float32
    assert expected.reference_error < 0.25 * expected.tolerance
    with torch.no_grad():
        assert oracle.compare(model(x), expected).ok
        assert oracle.compare(model(x.float()), expected).ok


class SaysFloat(torch.nn.Module):
    """As many references write it, whatever they are given."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(256)

    def forward(self, x):
        scale = torch.arange(256) / 256 + torch.ones(256, dtype=torch.float32)
        return (self.norm(x.float()) @ torch.diag(scale)).softmax(-1, dtype=torch.float32).to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_reference_that_says_float_is_computed_in_float64(dtype):
    """It stands for the oracle's float64, or operators would be given both; nothing is rounded to fp32."""
    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(5)).to(dtype)
    (expected,) = oracle.expect(SaysFloat(), [x], 3)
    normed = torch.nn.functional.layer_norm(x.double(), (256,))
    exact = (normed * (torch.arange(256).double() / 256 + 1)).softmax(-1)
    assert float((expected.values - exact).abs().max()) < 1e-14
    assert 0 < expected.reference_error < expected.tolerance / 2


@pytest.mark.parametrize(
    ("computes", "is_random"),
    [
        ("torch.nn.functional.dropout(x, 0.2)", True),
        ("x + torch.randn_like(x)", True),
        ("x * random.random()", True),
        ("x * float(numpy.random.rand())", True),
        ("torch.nn.functional.dropout(x, 0.0)", False),
        ("x + 0 * torch.rand(1)", False),
    ],
)
def test_a_reference_that_draws_random_numbers_is_refused_where_they_show(computes, is_random, tmp_path):
    """Else the differences of two calls would count as what rounding may change, and nearly all would be right."""
    file = tmp_path / "drawing.py"
    file.write_text(
        "import random\nimport numpy\nimport torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        f"        return {computes}\n\nCASES = [dict(name='a', shapes=[(4, 8)])]\n"
    )
    problem = load_problem(file, 0)
    refused = pytest.raises(UsageError, match=r"draws random numbers in case 'a': .* in RANDOM \(docs/problems\.md\)")
    with refused if is_random else contextlib.nullcontext():
        draw_case(problem, problem.cases[0], HostDevice("cpu", MemoryFile()), seed=1)


@pytest.mark.parametrize(
    ("computes", "said"),
    [
        ("torch.fft.rfft(x)", "complex numbers, which are not compared"),
        ("x[x > 0]", "Outputs whose shape depends on values cannot be judged."),
    ],
)
def test_outputs_that_cannot_be_compared_are_the_problems_fault(computes, said, tmp_path):
    text = f"import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return {computes}\n"
    (tmp_path / "odd.py").write_text(f"{text}\nCASES = [dict(name='a', shapes=[(64, 8)])]\n")
    (tmp_path / "mine.py").write_text(text.replace("Model", "ModelNew"))
    # By chance two draws have equally many positive elements, once in forty seeds.
    run = run_eval(tmp_path / "mine.py", "--problem", tmp_path / "odd.py", "--seed", "1")
    assert (run.code, said in run.stderr, "Traceback" in run.stderr) == (2, True, False), run.stderr


@pytest.mark.parametrize(
    "computes",
    [
        "return (x * 2, x.sum()) if self.training else x * 2",  # a loss beside it, as mixtures of experts have one
        "assert self.training, 'for training alone'; return x * 2",
        "return self.weight[:2]",
    ],
)
def test_what_a_reference_is_in_training_is_judged_whatever_it_is_in_evaluation(computes, tmp_path):
    text = "import torch\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    text += f"        self.weight = torch.nn.Parameter(torch.ones(8))\n    def forward(self, x):\n        {computes}\n"
    (tmp_path / "odd.py").write_text(f"{text}\nCASES = [dict(name='a', shapes=[(64, 8)], batch=True)]\n")
    (tmp_path / "mine.py").write_text(text.replace("Model", "ModelNew"))
    run = run_eval(tmp_path / "mine.py", "--problem", tmp_path / "odd.py", "--device", "cpu", "--no-timing")
    assert run.code == 0, run.stdout + run.stderr


def test_a_reference_that_fails_on_further_data_alone_is_the_problems_fault(tmp_path):
    file = tmp_path / "odd.py"
    file.write_text(
        "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        assert x[0, 0] < 0.5, 'too large'\n        return x * 2\n\nCASES = [dict(name='a', shapes=[(4, 4)])]\n"
    )
    problem = load_problem(file, 0)
    fails = 0
    for seed in range(20):
        with contextlib.suppress(UsageError):
            drawn = draw_case(problem, problem.cases[0], HostDevice("cpu", MemoryFile()), seed)
            try:
                assert drawn.further.inputs.expected_in_full and drawn.further.weights.expected
            except UsageError as error:
                fails += 1
                assert str(error).endswith("cannot be run on case 'a': AssertionError: too large (line 5).")
    assert fails


def test_a_reference_that_fails_is_told_with_its_line(tmp_path):
    file = tmp_path / "halved.py"
    file.write_text(
        "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        y = x * 2\n"
        "        return y.reshape(3, 5)\n\nCASES = [dict(name='a', shapes=[(4, 8)])]\n"
    )
    problem = load_problem(file, 0)
    with pytest.raises(UsageError, match=r"on case 'a': RuntimeError: shape .* of size 32 \(line 6\)\."):
        draw_case(problem, problem.cases[0], HostDevice("cpu", MemoryFile()), seed=1)


def test_float_in_a_reference_of_float64_is_meant_as_it_stands():
    class Rounds(torch.nn.Module):
        def forward(self, x):
            return x.float().double()

    x = torch.randn(8, 8, dtype=torch.float64)
    (expected,) = oracle.expect(Rounds(), [x], 3)
    assert torch.equal(expected.values, x.float().double())


def test_a_tensor_returned_twice_is_no_two_tensors(tmp_path):
    problem, path = tmp_path / "two.py", tmp_path / "mine.py"
    problem.write_text(
        "import torch.nn as nn\n"
        "class Model(nn.Module):\n    def forward(self, x):\n        return x + 1, x + 1\n"
        "CASES = [dict(name='a', shapes=[(3, 4)])]\n"
    )
    forward = "import torch.nn as nn\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        y = x + 1\n"
    path.write_text(forward + "        return y, y\n")
    found = run_eval(path, "--problem", problem, "--device", "cpu", "--no-timing")
    assert found.code == 1 and "output 0 and output 1 share memory" in found.stdout
    path.write_text(forward + "        return y, y.clone()\n")
    assert run_eval(path, "--problem", problem, "--device", "cpu", "--no-timing").code == 0
