"""What public submissions look like gets the verdict that its first lines name."""

import sys
import time

import pytest

from tests.helpers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks" / "agreement"))
import forms

# One of each group; benchmarks/agreement/forms.py judges all of them.
SOME = (
    "instance_norm/thread_per_row",
    "large_mean/one_pass",
    "plus_one/parameter_type",
    "shuffle_unit/shuffle_replaced",
)


@pytest.mark.parametrize("form", [form for form in forms.forms() if form.name in SOME], ids=lambda form: form.name)
def test_a_form_gets_the_verdict_that_it_names(form):
    judged = forms.judge(form, "emulator", time.monotonic() + 580)
    assert judged["as_wanted"], judged


def test_a_hung_kernel_is_waited_for_twice_and_what_was_seen_is_told():
    (hung,) = [form for form in forms.forms() if form.group == "hang"]
    judged = forms.judge(hung, "emulator", time.monotonic() + 580)
    assert [*judged["cases"].values()] == ["failed", "failed", "not_run"]
    assert "wait_and_double" in judged["message"]


def test_a_verdict_that_is_not_the_wanted_one_is_shown(tmp_path):
    folder = tmp_path / "plus_one"
    folder.mkdir()
    wrong = folder / "adds_two.py"
    right = forms.FOLDER / "plus_one" / "parentheses.py"
    wrong.write_text(right.read_text().replace("x[i] + 1", "x[i] + 2"))
    (tmp_path / "plus_one.py").write_bytes((forms.FOLDER / "plus_one.py").read_bytes())
    judged = forms.judge(forms.read_form(wrong), "emulator", time.monotonic() + 580)
    assert (judged["verdict"], judged["as_wanted"]) == ("rejected wrong_output", False)
    assert judged["share_of_tolerance"] > 1
