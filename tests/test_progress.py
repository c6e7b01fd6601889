"""What a terminal shows while a run lasts."""

from harness.events import Finished, Queued
from harness.report.progress import SoFar

FINISHED = Finished(None, 1, 6)


def test_of_one_submission_the_step_alone_is_shown():
    shown = []
    so_far = SoFar(shown.append)
    so_far.count(Queued("mine", "layernorm", "cpu"))
    so_far.show("mine: building")
    assert shown == ["mine: building"]


def test_of_several_it_is_shown_how_many_are_judged_and_how_long_the_rest_takes():
    shown, now_s = [], [1000.0]
    so_far = SoFar(shown.append, lambda: now_s[0])
    for name in "abcdef":
        so_far.count(Queued(name, "layernorm", "cpu"))
    for name in "abc":
        so_far.show(f"{name}: building")
        now_s[0] += 30.0
        so_far.count(FINISHED)
    now_s[0] += 90.0
    so_far.show("d: building")
    assert shown == [
        "0 of 6 judged · a: building",
        "1 of 6 judged, about 2 min left · b: building",
        "2 of 6 judged, about 2 min left · c: building",
        "3 of 6 judged, about 3 min left · d: building",
    ]
