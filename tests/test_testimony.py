"""What a worker says at once, and what the judge makes of it when a reply keeps silent about it."""

import importlib
import os
import re
import subprocess
import sys

import pytest
import torch

from harness.errors import SubmissionError
from harness.norms import NORMALISATIONS, unclassified
from harness.protocol.testimony import MAX_LINE_BYTES, Witness
from harness.protocol.testimony import Testimony as Reader
from harness.protocol.wire import Done, Failed, Named, Played, Ran
from harness.reasons import Reason
from harness.records import Finding
from tests.helpers import ROOT


@pytest.fixture
def pipe():
    """A witness and the testimony that reads it."""
    heard, said = os.pipe()
    testimony = Reader(heard)
    yield Witness(said), testimony
    testimony.close()
    os.close(said)


def test_what_a_reply_keeps_silent_about_takes_its_place(pipe):
    witness, testimony = pipe
    witness.forbidden("aten::native_layer_norm")
    witness.mark()
    reply = testimony.checked(Named([]))
    assert isinstance(reply, Failed)
    assert reply.reason == Reason.FORBIDDEN_OP
    assert "aten::native_layer_norm" in reply.message


def test_a_reply_that_tells_it_itself_stays(pipe):
    witness, testimony = pipe
    witness.forbidden("aten::native_layer_norm")
    witness.mark()
    told = Named([], forbidden=["aten::native_layer_norm"])
    assert testimony.checked(told) is told


def test_a_finding_of_the_emulator_takes_a_replys_place(pipe):
    witness, testimony = pipe
    line = b'{"type":"found","finding":{"kind":"data_race","message":"A race.","kernel":"k\xff","file":"a.py",'
    os.write(witness.descriptor, line + b'"launch":1,"line":3,"block":[0,0,0],"thread":null}}\n')
    witness.mark()
    reply = testimony.checked(Done())
    assert [finding.kind for finding in reply.findings] == [Reason.DATA_RACE]


@pytest.mark.parametrize("replies", [Failed, lambda *said: Ran([], findings=said[2])], ids=["failed", "ran"])
def test_what_the_emulator_cannot_do_hides_no_defect(pipe, replies):
    witness, testimony = pipe
    os.write(witness.descriptor, b'{"type":"found","finding":{"kind":"data_race","message":"A race."}}\n')
    witness.mark()
    cannot = Finding(Reason.UNSUPPORTED_BY_EMULATOR, "The emulator cannot execute it.")
    reply = testimony.checked(replies(Reason.UNSUPPORTED_BY_EMULATOR, "It cannot.", [cannot]))
    assert [finding.kind for finding in reply.findings] == [Reason.DATA_RACE]


def test_nothing_is_kept_for_the_next_reply(pipe):
    witness, testimony = pipe
    witness.forbidden("aten::native_layer_norm")
    witness.mark()
    testimony.checked(Done())
    witness.mark()
    assert testimony.checked(Done()) == Done()


def test_a_timed_round_is_not_held_up_and_the_next_reply_tells(pipe):
    witness, testimony = pipe
    witness.forbidden("aten::native_layer_norm")
    played = Played([], 0.0)
    assert testimony.checked(played) is played
    witness.mark()
    assert testimony.checked(Named([])).reason == Reason.FORBIDDEN_OP


def led_elsewhere(witness):
    """What is said goes nowhere for a while."""
    kept = os.dup(witness.descriptor)
    nowhere = os.open("/dev/null", os.O_WRONLY)
    os.dup2(nowhere, witness.descriptor)
    witness.forbidden("aten::native_layer_norm")
    os.dup2(kept, witness.descriptor)
    os.close(kept)
    os.close(nowhere)
    witness.mark()


SILENCED = {
    "closed": lambda witness: None,
    "led elsewhere and back": led_elsewhere,
    "no record": lambda witness: os.write(witness.descriptor, b"hello\n"),
    "no line": lambda witness: os.write(witness.descriptor, b"x" * (2 * MAX_LINE_BYTES)),
    "marks ahead": lambda witness: [witness.mark() for _ in range(9)],
    "changed hooks": lambda witness: witness.tampered("hooks were changed"),
}


@pytest.mark.parametrize("way", SILENCED)
def test_a_pipe_that_was_silenced_is_a_finding(pipe, way):
    witness, testimony = pipe
    SILENCED[way](witness)
    with pytest.raises(SubmissionError) as caught:
        testimony.checked(Done())
    assert caught.value.reason == Reason.TAMPERED


def test_a_worker_may_have_loaded_and_compiled_before_the_judge_hears_that_it_is_ready(pipe):
    """torch.compile's is asked for both ahead, while a submission is judged."""
    witness, testimony = pipe
    for _ in range(3):
        witness.mark()
    assert [testimony.checked(Done()) for _ in range(3)] == [Done()] * 3


def test_a_line_without_end_is_refused_as_it_is_read(pipe):
    """And not only when a reply comes: it would be kept until then."""
    witness, testimony = pipe
    SILENCED["no line"](witness)
    with pytest.raises(SubmissionError, match="no record"):
        testimony.read()


def test_every_operator_that_looks_like_a_normalisation_is_classified():
    """A new torch may have new relatives: look at each, and put it into one of the lists. Some are only registered when
    a part of torch is imported."""
    importlib.import_module("torch._inductor.compile_fx")
    of_torchscript = (schema.name for schema in torch._C._jit_get_all_schemas())
    assert unclassified([*torch._C._dispatch_get_all_op_names(), *of_torchscript]) == []
    assert unclassified(["aten::native_power_norm"]) == ["aten::native_power_norm"]


CHANGES = {
    "code of a refusal": """
        for f in gc.get_objects():
            if type(f).__name__ == "function" and f.__qualname__ == "Refusals.of.<locals>.refuse":
                f.__code__ = f.__code__.replace(co_name="refuses")
    """,
    "kernel of an operator": """
        kept = torch._C._dispatch_library("IMPL", "aten", "", "", 0)
        kept.impl("native_layer_norm", "CPU", lambda *a: a)
    """,
    "nothing": "pass",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_guard_that_was_changed_says_so(change):
    """In a process of its own, which forbids its operators for good."""
    program = f"""
import gc, os, textwrap, torch
from harness.protocol.testimony import Witness
from harness.worker.walls.guard import Guard
heard, said = os.pipe()
guard = Guard(Witness(said))
guard.check()
exec(textwrap.dedent({CHANGES[change].strip(chr(10))!r}))
guard.check()
os.close(said)
print(os.read(heard, 9999).decode())
"""
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ("tampered" in run.stdout) == (change != "nothing"), run


def test_no_key_of_the_dispatcher_leads_to_a_forbidden_result():
    """Each key is tried in a process of its own: some end it."""
    program = """
import os, torch
from harness.protocol.testimony import Witness
from harness.worker.walls.guard import Guard

x, w = torch.randn(4, 8), torch.full((8,), 3.0)
aten = torch.ops.aten
calls = [(aten._fused_rms_norm.default, (x, [8], w, 1e-5)), (aten.native_layer_norm.default, (x, [8], w, w, 1e-5))]
expected = [call(*arguments)[0] for call, arguments in calls]
guard = Guard(Witness(os.open(os.devnull, os.O_WRONLY)))
for (call, arguments), right in zip(calls, expected):
    for name, key in torch._C.DispatchKey.__members__.items():
        if child := os.fork():
            if os.waitpid(child, 0)[1] == 7 << 8:
                print(call, name)
            continue
        try:
            found = call.redispatch(torch._C.DispatchKeySet(key), *arguments)[0]
            os._exit(7 if torch.allclose(found, right) else 0)
        except BaseException:
            os._exit(0)
print("tried", len(torch._C.DispatchKey.__members__))
"""
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"tried \d{2,}\n", run.stdout), run.stdout


@pytest.mark.parametrize(("allowed", "right"), [("_fused_rms_norm", True), ("rms_norm", True), ("renorm", False)])
def test_a_problem_that_allows_rms_norm_by_either_name_allows_it(allowed, right):
    program = f"""
import os, torch
import torch.nn.functional as F
from harness.protocol.testimony import Witness
from harness.worker.walls.guard import Guard

x, w = torch.randn(4, 8), torch.full((8,), 3.0)
expected = F.rms_norm(x, [8], w), F.rms_norm(x, [8], w.double())
Guard(Witness(os.open(os.devnull, os.O_WRONLY)), allowed=["{allowed}"])
try:
    found = F.rms_norm(x, [8], w), F.rms_norm(x, [8], w.double())
    print(all(map(torch.equal, found, expected)))
except RuntimeError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (run.stdout == "True\n") == right and ("must not run" in run.stdout) == (not right), run.stdout


def test_every_normalisation_is_refused_or_unknown_to_this_torch():
    missing = [name for name in NORMALISATIONS if not hasattr(torch.ops.aten, name)]
    assert len(missing) < len(NORMALISATIONS) // 3
