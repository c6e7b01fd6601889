"""Problem files: KernelBench's as they are, CASES, and a sentence for what is wrong with one."""

import pytest
import torch

from harness.errors import UsageError
from harness.judging.runner import precompilation
from harness.paths import PROBLEMS
from harness.problem import load_problem
from tests.helpers import ROOT, run_eval

KERNELBENCH = '''
import torch
import torch.nn as nn

class Model(nn.Module):
    """Simple model that performs Layer Normalization."""

    def __init__(self, normalized_shape: tuple):
        super(Model, self).__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.ln(x)

batch_size = 4
features = 8
dim1 = 16
dim2 = 16

def get_inputs():
    x = torch.rand(batch_size, features, dim1, dim2)
    return [x]

def get_init_inputs():
    return [(features, dim1, dim2)]
'''


def write(tmp_path, text):
    path = tmp_path / "40_LayerNorm.py"
    path.write_text(text)
    return path


def test_a_kernelbench_file_is_a_problem_of_one_timed_case(tmp_path):
    problem = load_problem(write(tmp_path, KERNELBENCH), 0)
    (case,) = problem.cases
    assert case.timed
    assert case.shape_text == "4×8×16×16"
    assert problem.init_args(case, 0) == ((8, 16, 16),)


def test_a_kernelbench_file_is_judged_from_the_command_line(tmp_path):
    control = ROOT / "tests" / "hostile" / "form" / "control.py"
    text = control.read_text().replace("mean(-1, ", "mean((-3, -2, -1), ")
    submission = tmp_path / "submission.py"
    submission.write_text(text)
    run = run_eval(submission, "--problem", write(tmp_path, KERNELBENCH))
    (evaluation,) = run.results["evaluations"]
    assert run.code == 0, evaluation
    assert evaluation["problem"] == "40_LayerNorm"


MIXED = """
import torch, torch.nn as nn

class Model(nn.Module):
    def forward(self, factor, x, classes, mask, how="sum"):
        y = torch.where(mask, x * factor, 0.0)
        return y.sum() if how == "sum" else y.mean(), y.argmax(1), classes.bool()

def get_inputs():
    x = torch.rand(64, 48)
    return [2.5, x, torch.randint(0, 7, (9,)), torch.rand(x.shape) > 0.5, "sum"]

def get_init_inputs():
    return []
"""


def test_what_is_no_tensor_stands_between_those_that_are(tmp_path):
    """Of any dtype; as when KernelBench multiplies a matrix by a Python number."""
    problem = load_problem(write(tmp_path, MIXED), 0)
    (case,) = problem.cases
    inputs = problem.draw_inputs(case, 1, torch.device("cpu"))
    assert [t.dtype for t in inputs] == [torch.float32, torch.int64, torch.bool]
    total, _, _ = problem.build_model(case, 1, torch.device("cpu"))(*inputs)
    assert total == torch.where(inputs[2], inputs[0] * 2.5, 0.0).sum()
    precompiled = precompilation(problem, case)
    assert [ref.dtype for ref in precompiled.inputs] == ["float32", "int64", "bool"]
    assert {c.position: c.value for c in precompiled.constants} == {0: 2.5, 4: "sum"}


def test_inputs_and_outputs_of_all_kinds_are_judged(tmp_path):
    """Numbers, integers and masks; a result without dimensions, places and truth."""
    problem = write(tmp_path, MIXED)
    right = MIXED.replace("class Model(", "class ModelNew(")
    (tmp_path / "right.py").write_text(right)
    (tmp_path / "wrong_index.py").write_text(right.replace("y.argmax(1)", "y.argmin(1)"))
    (tmp_path / "wrong_bool.py").write_text(right.replace("classes.bool()", "classes == 0"))
    names = ["right", "wrong_index", "wrong_bool"]
    run = run_eval(*(tmp_path / f"{name}.py" for name in names), "--problem", problem, "--no-timing")
    found = {e["submission"]: (e["status"], e.get("reason")) for e in run.results["evaluations"]}
    assert found == {"right": ("accepted", None), **dict.fromkeys(names[1:], ("rejected", "wrong_output"))}


def test_inputs_are_drawn_on_the_device_where_they_can_be(tmp_path):
    """On a GPU billions of numbers take no time; what insists on the CPU's memory is drawn there and moved."""
    for numbers in ("torch.rand(4, 8, 16, 16)", "torch.rand(4, 8, 16, 16).numpy() * 2"):
        text = KERNELBENCH.replace("return [x]", f"return [torch.as_tensor({numbers})]")
        problem = load_problem(write(tmp_path, text), 0)
        (case,) = problem.cases
        assert problem.draw_inputs(case, 0, torch.device("meta"))[0].is_meta
        assert not problem.draw_inputs(case, 0, torch.device("cpu"))[0].is_meta
        assert case.shape_text == "4×8×16×16"


def test_a_number_that_is_another_each_time_gets_a_sentence(tmp_path):
    text = KERNELBENCH.replace("return [x]", "import random; return [x, random.random()]")
    problem = load_problem(write(tmp_path, text), 0)
    with pytest.raises(UsageError, match="must be the same in each call"):
        problem.draw_inputs(problem.cases[0], 0, torch.device("cpu"))


def test_weights_are_random_and_repeat_with_their_seed():
    problem = load_problem(PROBLEMS / "layernorm.py", 0)
    case = next(c for c in problem.cases if c.name == "16x1024")
    model, again, other = (problem.build_model(case, seed, torch.device("cpu")) for seed in (1, 1, 2))
    weight, bias = model.ln.weight, model.ln.bias
    assert weight.std() > 0.1
    assert bias.std() > 0.1
    assert torch.equal(weight, again.ln.weight)
    assert not torch.equal(weight, other.ln.weight)


def test_saved_statistics_are_random_and_a_variance_stays_positive(tmp_path):
    """Kernels that leave the statistics of a frozen batch norm out would be right otherwise."""
    text = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(64)
        self.register_buffer("scale", torch.tensor([0.125]))
        self.register_buffer("mask", torch.ones(64), persistent=False)
        self.register_buffer("order", torch.arange(64.0))
CASES = [dict(name="a", shapes=[(4, 64)])]
"""
    problem = load_problem(write(tmp_path, text), 0)
    model, again, other = (problem.build_model(problem.cases[0], seed, torch.device("cpu")) for seed in (1, 1, 2))
    mean, variance = model.norm.running_mean, model.norm.running_var
    assert mean.std() > 0.1 and variance.std() > 0.1 and (variance >= 0.5).all()
    assert torch.equal(variance, again.norm.running_var) and not torch.equal(variance, other.norm.running_var)
    assert model.scale.item() == 0.125 and model.mask.eq(1).all() and torch.equal(model.order, torch.arange(64.0))


def test_random_shapes_repeat_with_their_seed():
    def shapes(seed):
        cases = load_problem(PROBLEMS / "layernorm.py", seed).cases
        return [case.shapes for case in cases if case.name.startswith("random")]

    assert len(shapes(1)) == 6
    assert max(shape[-1] for seed in range(5) for (shape,) in shapes(seed)) > 2000
    assert shapes(1) == shapes(1)
    assert shapes(1) != shapes(2)


def test_a_device_runs_the_stand_in_that_it_can_afford(tmp_path):
    stand_ins = "scaled=dict(shapes=[(80, 2)]), emulated=dict(shapes=[(8, 2)])"
    path = write(tmp_path, "import torch.nn as nn\nclass Model(nn.Module): pass\n"
                 f"CASES = [dict(name='a', shapes=[(800, 2)], {stand_ins}),\n"
                 "         dict(name='b', shapes=[(700, 2)], scaled=dict(shapes=[(70, 2)]))]")  # fmt: skip
    a, b = load_problem(path, 0).cases
    assert [a.on(device).shapes for device in ("cuda", "cpu", "emulator")] == [((800, 2),), ((80, 2),), ((8, 2),)]
    assert [b.on(device).shapes for device in ("cuda", "cpu", "emulator")] == [((700, 2),), ((70, 2),), ((70, 2),)]


def test_shipped_cases_cover_what_the_documentation_promises():
    cases = load_problem(PROBLEMS / "layernorm.py", 0).cases
    shapes = {case.shapes[0] for case in cases}
    assert {(16, 64, 256, 256), (8192, 4096), (1, 7), (2, 33), (3, 4096), (0, 256), (70_000, 24)} <= shapes
    assert {case.layout for case in cases} == {"contiguous", "transposed", "offset"}


BROKEN = {
    "no Model": ("x = 1", "defines no Model"),
    "no cases": ("import torch.nn as nn\nclass Model(nn.Module): pass", "neither CASES nor get_inputs"),
    "an import error": ("import nothing_like_this", "line 1"),
    "an end in the middle": ("import sys\nsys.exit('no GPU')", r"SystemExit: no GPU \(line 2\)"),
    "cases that are no list": ("CASES = {'a': 1}", "CASES is a dict; it is a list of cases"),
    "random cases that fail": ("def random_cases(rng): return rng.no_such()", r"random_cases\(rng\) raises .*line 3"),
    "random cases that are none": ("def random_cases(rng): pass", "what random_cases.* returns is a NoneType"),
    "random outputs that are a list": ("RANDOM = [0]", "RANDOM is .*; it is a dict of an output's number"),
    "an unknown key": ("CASES = [dict(name='a', shapes=[(1,)], size=3)]", "size"),
    "a misspelt key": ("CASES = [dict(name='a', shpes=[(1,)])]", "known are name, shapes, .* Did you mean 'shapes'"),
    "a misspelt key of a stand-in": (
        "CASES = [dict(name='big', shapes=[(9,)], scaled=dict(shpes=[(1,)]))]",
        "'scaled' of case 'big' has the unknown key 'shpes'; known are name, shapes",
    ),
    "a shape in place of shapes": ("CASES = [dict(name='a', shapes=(7, 33))]", r"did you mean \[\(7, 33\)\]"),
    "a stand-in's shape in place of shapes": (
        "CASES = [dict(name='a', shapes=[(9,)], emulated=dict(shapes=[7]))]",
        r"'emulated' of case 'a' .* did you mean \[\(7,\)\]",
    ),
    "a timed case of nothing": ("CASES = [dict(name='a', shapes=[(0, 8)], timed=True)]", "has no elements"),
    "an unknown distribution": ("CASES = [dict(name='a', shapes=[(1,)], distribution='odd')]", "known are normal"),
    "a misspelt distribution": (
        "CASES = [dict(name='a', shapes=[(1,)], distribution='norml')]",
        "Did you mean 'normal'",
    ),
    "a negative size": ("CASES = [dict(name='a', shapes=[(2, -8)])]", r"case 'a' .*a dimension is 0 or more"),
    "an unknown dtype": ("CASES = [dict(name='a', shapes=[(1,)], dtype='float7')]", "float7"),
    "inputs that fail": ("def get_inputs(): return [1 / 0]", "ZeroDivisionError: .*line 3"),
    "inputs that are no list": ("def get_inputs(): return 3", "returned an int"),
    "an input that nothing can carry": ("def get_inputs(): return [{1, 2}]", "a set as input 0"),
    "forbidden operators that are a string": ("FORBIDDEN_OPS = 'softmax'", "it is a list of names"),
    "an unknown operator": ("FORBIDDEN_OPS = ['nosuchop']", "names 'nosuchop', and torch .* has no"),
    "a misspelt operator": ("FORBIDDEN_OPS = ['native_droput']", "did you mean 'native_dropout'"),
    "an unknown overload": ("FORBIDDEN_OPS = ['gelu.into']", "did you mean 'gelu.out'"),
    "an allowed overload": ("ALLOWED_OPS = ['native_layer_norm.out']", "it takes operators: 'native_layer_norm'"),
    "a tolerance that is no number": (
        "TOLERANCE_FACTOR = '2'",
        "TOLERANCE_FACTOR is '2'; it is a finite number above 0",
    ),
    "a tolerance that is a truth": ("TOLERANCE_FACTOR = True", "TOLERANCE_FACTOR is True; it is a finite number"),
    "a tolerance of nothing": ("TOLERANCE_FACTOR = 0", "TOLERANCE_FACTOR is 0; .* 4 where nothing is set"),
    "a tolerance below nothing": ("TOLERANCE_FACTOR = -1.5", "TOLERANCE_FACTOR is -1.5"),
    "a tolerance without end": ("TOLERANCE_FACTOR = float('inf')", "TOLERANCE_FACTOR is inf"),
    "a tolerance that is nan": ("TOLERANCE_FACTOR = float('nan')", "TOLERANCE_FACTOR is nan"),
    "a tolerance that no float holds": ("TOLERANCE_FACTOR = 10 ** 400", "it is a finite number above 0"),
    "a misspelt tolerance": ("TOLERANCE_FAKTOR = 2", "TOLERANCE_FACTOR was meant"),
    "a setting in small letters": ("cases = [dict(name='a', shapes=[(1,)])]", "sets cases, .* CASES was meant"),
    "a misspelt setting": ("FORBIDEN_OPS = ['gelu']", "FORBIDDEN_OPS was meant"),
    "a repeated name": ("CASES = [dict(name='a', shapes=[(1,)])] * 2", "named 'a'"),
}


def test_sizes_and_dtypes_may_be_numpys_and_torchs_and_dtypes_have_short_names(tmp_path):
    path = write(
        tmp_path,
        """
import torch
class Model(torch.nn.Module): pass
CASES = [dict(name="a", shapes=[torch.Size((2, 8))], dtype=torch.bfloat16, scaled=dict(dtype="fp16"))]
def random_cases(rng):
    return [dict(shapes=[tuple(rng.integers(1, 9, 2))], init=[rng.random()], dtype="fp64")]
""",
    )
    case, drawn = load_problem(path, 0).cases
    assert (case.name, drawn.name) == ("a", "random 1")
    assert (case.shapes, case.dtype, case.scaled.dtype) == (((2, 8),), torch.bfloat16, torch.float16)
    assert drawn.dtype == torch.float64
    assert {type(size) for size in drawn.shapes[0]} == {int}


def test_what_a_problem_file_prints_stands_in_no_reports_way(tmp_path):
    """While it is loaded, while it draws and while its reference runs."""
    text = KERNELBENCH.replace("return self.ln(x)", "print('a call'); return self.ln(x)")
    text = text.replace("    x = torch.rand", "    print('a draw')\n    x = torch.rand") + "print('a load')\n"
    control = ROOT / "tests" / "hostile" / "form" / "control.py"
    run = run_eval(control, "--problem", write(tmp_path, text))
    assert run.results["evaluations"], run.stdout  # standard output is JSON
    assert all(said in run.stderr for said in ("a load", "a draw", "a call"))


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_problem_file_gets_a_sentence(what, tmp_path):
    text, sentence = BROKEN[what]
    if text.startswith(("FORBID", "ALLOWED", "RANDOM", "TOLERANCE")):
        text = f"CASES = [dict(name='a', shapes=[(1,)])]\n{text}"
    if text.startswith(("CASES", "cases", "def")):
        text = "import torch.nn as nn\nclass Model(nn.Module): pass\n" + text
    with pytest.raises(UsageError, match=sentence):
        load_problem(write(tmp_path, text), 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import torch\n\nclass Model(torch.nn.Module)\n    pass\n", "SyntaxError: expected ':' (line 3)."),
        ("import json\n\nx = json.loads(\n'{')\n", "(line 3)."),
        ("import bad_module\n", "(bad_module.py, line 2) (line 1)."),
    ],
    ids=["its syntax", "a library that it calls", "the syntax of a module that it imports"],
)
def test_an_error_names_a_line_of_the_problem_file(text, said, tmp_path, monkeypatch):
    (tmp_path / "bad_module.py").write_text("\nx = = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError) as error:
        load_problem(write(tmp_path, text), 0)
    assert str(error.value).endswith(said)
    assert "looks like" not in str(error.value)


@pytest.mark.parametrize("more", ["", "raise OSError('no toolkit')\n", "x = = 1\n"])
def test_a_submission_given_as_the_problem_is_called_one(more, tmp_path):
    text = f"import torch.nn as nn\nclass ModelNew(nn.Module): pass\n{more}"
    with pytest.raises(UsageError, match="looks like a submission and not a problem"):
        load_problem(write(tmp_path, text), 0)


def test_a_problem_says_how_many_error_bounds_are_allowed(tmp_path):
    assert load_problem(write(tmp_path, KERNELBENCH), 0).tolerance_factor == 4.0
    assert load_problem(write(tmp_path, KERNELBENCH + "TOLERANCE_FACTOR = 2\n"), 0).tolerance_factor == 2.0


def test_names_of_its_own_are_a_problem_files_business(tmp_path):
    text = KERNELBENCH + "FORBIDDEN_OPS = ('gelu', 'gelu.out')\nN = 3\nSMALL = BASE = CACHE = RAND = 1\n"
    assert load_problem(write(tmp_path, text), 0).forbidden_ops == {"gelu", "gelu.out"}
