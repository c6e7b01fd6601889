"""The contenders that are still being timed: a round of each at a time, and who is left out."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from harness.errors import Stopped, SubmissionError
from harness.reasons import Reason
from harness.timing.rounds.contender import Contender
from harness.timing.rounds.round import Round, RoundPlayer, play_mapped


class Running:
    """Plays and judges rounds of all contenders. One that fails is left out of all further rounds; if it is the first,
    the submission, the error goes on to the caller."""

    def __init__(self, player: RoundPlayer, contenders: Sequence[Contender]) -> None:
        self._player = player
        self._first = contenders[0]
        self._random = random.SystemRandom()
        self.contenders = list(contenders)
        self.left_out: dict[str, str] = {}
        """Why each contender that failed was left out, a sentence by its name."""

    def warm_up(self, calls: Mapping[str, int]) -> list[Round]:
        """A round of each, `calls` by its name, that may compile, allocate and map memory: its time says
        little."""
        return self._everyone(
            lambda contender: self._player.play(
                contender, calls[contender.name], check_all_inputs=self._check_all_inputs()
            )
        )

    def play(self, calls: Mapping[str, int]) -> list[Round]:
        """A round of each, `calls` by its name."""
        return self._everyone(
            lambda contender: play_mapped(
                self._player, contender, calls[contender.name], check_all_inputs=self._check_all_inputs()
            )
        )

    def _everyone(self, play: Callable[[Contender], Round]) -> list[Round]:
        """A round of each contender on the same data, in random order; those that were judged to be right."""
        self._player.fill()
        played = []
        for contender in self._random.sample(self.contenders, len(self.contenders)):
            with self.leaving_out(contender):
                played.append(play(contender))
        return self._right(played)

    def _right(self, rounds: Sequence[Round]) -> list[Round]:
        right = []
        for played, expected in zip(rounds, self._player.expected(rounds), strict=True):
            with self.leaving_out(played.contender):
                self._player.judge(played, expected)
                right.append(played)
        return right

    def _check_all_inputs(self) -> bool:
        """Of two contenders whose code is not ours, one could write into inputs and have the other found wrong."""
        return sum(not contender.trusted for contender in self.contenders) > 1

    @contextlib.contextmanager
    def leaving_out(self, contender: Contender) -> Iterator[None]:
        """Leaves `contender` out if what is done in here stops it.

        Raises what stopped the first contender, and SubmissionError when a trusted one failed because its inputs had
        been written into."""
        try:
            yield
        except Stopped as error:
            if contender is self._first:
                raise
            if contender.trusted and self._player.inputs_were_written():
                message = f"{contender.name} failed in a timed round because somebody had written into its inputs."
                raise SubmissionError(Reason.INPUT_MODIFIED, message) from error
            self.contenders.remove(contender)
            self.left_out[contender.name] = error.message
