"""What a submission that is right may owe to the problem and not to itself, gathered over all cases."""

from __future__ import annotations

from harness.notes import Note, SameInEachDraw, SameInEachElement, SmallUnseen, TrainingAlone
from harness.oracle.draw import Drawn, held_alike, only_values, unseen_shares
from harness.oracle.outputs import UNSEEN_SHARE


class WeakData:
    """Tables by the names of weights, inputs and outputs, which each case adds to."""

    def __init__(self) -> None:
        self._alike: dict[str, bool] = {}
        self._elements: dict[str, int] = {}
        self._only_values: dict[str, float | None] = {}
        self._unseen_shares: dict[str, float] = {}
        self._holds_in_evaluation: bool | None = None
        """Of the first case that is small enough to be called again."""

    def add(self, drawn: Drawn) -> None:
        if self._holds_in_evaluation is None and drawn.further is not None:
            self._holds_in_evaluation = drawn.reference.holds_in_evaluation(drawn.data, drawn.expected)
        for name, is_alike in held_alike(drawn).items():
            self._alike[name] = self._alike.get(name, True) and is_alike
        for name, value in only_values(drawn).items():
            known = self._only_values.setdefault(name, value)
            self._only_values[name] = value if value == known else None
        for name, share in unseen_shares(drawn).items():
            self._unseen_shares[name] = min(share, self._unseen_shares.get(name, share))
        for expected in drawn.expected:
            name = expected.form.name
            self._elements[name] = self._elements.get(name, 0) + expected.values.numel()

    def notes(self) -> list[Note]:
        """On weights and inputs that held the same numbers in every draw, on outputs that should be one number in every
        element, or for much of which zeros pass, where one element says nothing, and on a mode that is not judged."""
        found: list[Note] = []
        if alike := [name for name, is_alike in self._alike.items() if is_alike]:
            found.append(SameInEachDraw(names=alike))
        for output, value in self._only_values.items():
            if value is not None and self._elements[output] > 1:
                found.append(SameInEachElement(output=output, value=value))
        for output, share in self._unseen_shares.items():
            if share >= UNSEEN_SHARE and self._elements[output] > 1:
                found.append(SmallUnseen(output=output, share=share))
        if self._holds_in_evaluation is False:
            found.append(TrainingAlone())
        return found
