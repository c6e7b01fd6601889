"""How many rounds contenders have and how many calls a round has, when all start again, and when it is enough."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from harness.errors import Inconclusive
from harness.garbage import no_garbage_collection
from harness.reasons import Reason
from harness.timing.rounds.calls import LONGEST_ROUND, MIN_CALLS, choose_calls, most_calls
from harness.timing.rounds.conditions import Looks, are_spoiled
from harness.timing.rounds.contender import Contender
from harness.timing.rounds.null_cost import Cost, NullCost
from harness.timing.rounds.round import Round, RoundPlayer
from harness.timing.rounds.running import Running

# Calls of the first round, and of the first of two probes from which the number of calls is chosen. A contender whose
# first round was long keeps to the first number. The next probe has the calls that the first one chose. The fastest
# counts: a round that a busy machine slowed would choose few calls, and few calls say little. Where the first probe
# gives all the fewest calls, it is the only one: if it was slow, all start again.
FIRST_CALLS = 2
PROBE_CALLS = 16

# Rounds keep their calls where another probe asks for no more than so many times as many: more memory would have to be
# mapped, and other calls captured, first.
ENOUGH = 1.25

# All start again when the median of at least so many rounds would give a contender at least so many times its calls.
TOO_FEW = 2
ROUNDS_TO_RESTART = 3

# Most need at most one restart. After two, give up: each restart repeats every round, and a round may last as long as
# several timeouts. Who becomes faster again after that is told no time.
MOST_RESTARTS = 2

MAX_ROUNDS = 200

# Where somebody is below noise, rounds go on for so many times as long: a time that no round tells may be told by many.
BUDGETS_BELOW_NOISE = 4

# Sets of rounds that are played again where the device was throttled or others used it, in all, and how long it is left
# alone before each. What lasts longer than that is said, not waited for.
MOST_DISCARDED = 5
RESPITE_S = 0.1


class Schedule:
    """Times contenders on one case, by rounds that a player plays."""

    def __init__(
        self, player: RoundPlayer, null_cost: NullCost, contenders: Sequence[Contender], round_us: float
    ) -> None:
        """The first contender is the submission. `round_us` is how long rounds should be."""
        self._player = player
        self._null_cost = null_cost
        self._contenders = contenders
        self._running = Running(player, contenders)
        self._round_us = round_us
        self._most_calls = most_calls(player.buffer_count)
        self._restarts = 0
        self.kept: list[Looks] = []
        """What was seen of the device around each round that counts."""
        self.discarded: list[Looks] = []
        """And around those that were played again."""

    def measure(self, budget_s: float, half_width: float, least_rounds: int) -> dict[str, str]:
        """Play interleaved rounds until each contender has `least_rounds`, and either every time's interval is within
        the share `half_width` of it on both sides or the budget is spent, which is BUDGETS_BELOW_NOISE times as large
        while one of them is below noise.

        Returns why each baseline that failed was left out, by its name. Raises SubmissionError when the submission
        fails, Inconclusive when it became faster again and again, and JudgeFailed when the null kernel fails."""
        self._choose_calls()
        begun = time.monotonic()
        with no_garbage_collection():
            for left in reversed(range(MAX_ROUNDS)):
                if self._is_enough(half_width, least_rounds, budget_s, time.monotonic() - begun):
                    break
                self._play_round()
                if left >= least_rounds:  # a restart needs so many
                    self._restart_if_faster()
        self._leave_out_the_unsteady()
        for contender in self._contenders:
            contender.finished = contender in self._running.contenders
        return self._running.left_out

    def _is_enough(self, half_width: float, least_rounds: int, budget_s: float, spent_s: float) -> bool:
        running = self._running.contenders
        if min(len(contender.round_s) for contender in running) < least_rounds:
            return False
        if any(contender.below_noise() for contender in running):
            return spent_s > BUDGETS_BELOW_NOISE * budget_s
        return spent_s > budget_s or all(contender.known_within(half_width) for contender in running)

    def _play_round(self) -> None:
        rounds, costs = self._play_undisturbed()
        self.kept.append(self._player.seen())
        for played in rounds:
            contender = played.contender
            contender.round_s.append(played.elapsed_s)
            contender.null_s.append(costs[contender.name].elapsed_s)
            contender.null_processor_s.append(costs[contender.name].processor_s)
            contender.issue_us.append(played.issue_us / max(played.calls - 1, 1))
            contender.processor_s.append(played.processor_s)

    def _play_undisturbed(self) -> tuple[list[Round], dict[str, Cost]]:
        """A round of each and what it cost beside its calls. All are played again where the device was throttled or
        others used it, so that none is chosen by its time."""
        while True:
            rounds = self._running.play(self._calls())
            costs = self._null_cost.of(rounds)
            if len(self.discarded) == MOST_DISCARDED or not are_spoiled(self._player.seen()):
                return rounds, costs
            self.discarded.append(self._player.seen())
            time.sleep(RESPITE_S)

    # ------------------------------------------------------------------ calls of a round

    def _calls(self) -> dict[str, int]:
        return {contender.name: contender.calls for contender in self._running.contenders}

    def _choose_calls(self) -> None:
        """As many calls as fill `round_us`, by probes."""
        are_captured = all(contender.captured for contender in self._contenders)
        calls = self._warm_up_captured() if are_captured else self._warm_up()
        wanted = self._probe(calls)
        if are_captured and _are_enough(calls, wanted):
            return
        self._begin(wanted)
        if max(wanted.values()) > MIN_CALLS:
            calls, wanted = wanted, self._probe(wanted)
            if not _are_enough(calls, wanted):
                self._begin(wanted)

    def _begin(self, calls: Mapping[str, int]) -> None:
        """From now on rounds have so many, by contenders' names."""
        for contender in self._running.contenders:
            contender.calls = calls[contender.name]
        self._use_buffers()

    def _use_buffers(self) -> None:
        """As many as the contenders' calls need."""
        self._player.use_buffers_for(max(self._calls().values()))

    def _warm_up(self) -> dict[str, int]:
        """A round of each, which may be slow. Returns the calls of the first probe, by contenders' names."""
        first, probe = min(FIRST_CALLS, self._most_calls), min(PROBE_CALLS, self._most_calls)
        longest_s = LONGEST_ROUND * self._round_us / 1e6
        warmed_up = self._running.warm_up({contender.name: first for contender in self._running.contenders})
        return {p.contender.name: first if p.elapsed_s > longest_s else probe for p in warmed_up}

    def _warm_up_captured(self) -> dict[str, int]:
        """The same with the calls that rounds had which were not captured."""
        self._use_buffers()
        self._running.warm_up(self._calls())
        return self._calls()

    def _probe(self, calls: Mapping[str, int]) -> dict[str, int]:
        """Estimate the times of calls by a round of each contender, of which the fastest probe counts. Returns the
        calls that they ask for."""
        rounds = self._running.play(calls)
        costs = self._null_cost.of(rounds)
        for played in rounds:
            contender = played.contender
            call_us = max((played.elapsed_s - costs[contender.name].elapsed_s) * 1e6 / played.calls, 1.0)
            contender.call_us = min(call_us, contender.call_us or call_us)
        return self._calls_for_estimates()

    def _calls_for_estimates(self) -> dict[str, int]:
        """Calls of a round for each contender's `call_us`, by its name."""
        call_us = {contender.name: contender.call_us for contender in self._running.contenders}
        return choose_calls(call_us, self._round_us, self._most_calls)

    # ------------------------------------------------------------------ contenders that became faster

    def _restart_if_faster(self) -> None:
        """Start again where a contender was slow when calls were chosen and is no longer: its rounds are so short that
        what a round costs beside its calls decides what they seem to take."""
        done = min(len(contender.round_s) for contender in self._running.contenders)
        if done < ROUNDS_TO_RESTART or self._restarts == MOST_RESTARTS:
            return
        chosen = self._calls_by_medians()
        if not self._with_too_few(chosen):
            return
        self._restarts += 1
        self.kept.clear()
        for contender in self._running.contenders:
            contender.start_again(max(chosen[contender.name], contender.calls))
        self._use_buffers()

    def _calls_by_medians(self) -> dict[str, int]:
        """Calls of a round by the rounds so far, by contenders' names."""
        for contender in self._running.contenders:
            contender.call_us = max(float(np.median(contender.net_us())), 1.0)
        return self._calls_for_estimates()

    def _with_too_few(self, chosen: Mapping[str, int]) -> list[Contender]:
        return [c for c in self._running.contenders if chosen[c.name] >= TOO_FEW * c.calls]

    def _leave_out_the_unsteady(self) -> None:
        """Leave out who became faster once more than there are restarts. Times below noise are found elsewhere."""
        for contender in self._with_too_few(self._calls_by_medians()):
            # By its own time: with the others' it would have more calls if one of them became faster.
            alone = choose_calls({"": contender.call_us}, self._round_us, self._most_calls)[""]
            if alone >= TOO_FEW * contender.calls and not contender.below_noise():
                with self._running.leaving_out(contender):
                    raise _unsteady(contender)


def _are_enough(calls: Mapping[str, int], wanted: Mapping[str, int]) -> bool:
    """Whether rounds of `calls` are long enough where a probe asks for the calls `wanted`."""
    return all(wanted[name] <= ENOUGH * calls[name] for name in wanted)


def _unsteady(contender: Contender) -> Inconclusive:
    return Inconclusive(
        Reason.TOO_NOISY,
        f"{contender.name} became faster again and again while it was timed: its rounds were too short at last to "
        "tell its time. Run it again, alone on the machine.",
    )
