"""Kernels as a task of reinforcement learning, for libraries that bring their own interfaces; none has to be installed.

`KernelEnv` has the methods of a gymnasium environment whose actions and observations are texts: a model writes a
submission, reads what is wrong with it, and writes another. `Rubric` has what libraries ask for that score whole
answers, such as the reward functions of `verifiers`: an async function of the completion.
"""

import re

from reward import reward

from harness import Pool, Result

TASK = "Write a Python file with a class ModelNew that computes what this problem's Model does, faster: {problem}"
_BLOCK = re.compile(r"```(?:python)?\n(.*?)```", re.DOTALL)


def source_of(answer: str) -> str:
    """The last fenced block of an answer; all of it where there is none."""
    blocks = _BLOCK.findall(answer)
    return blocks[-1] if blocks else answer


def feedback(result: Result) -> str:
    """What a model may read: the stage that it came to, the sentence, and nothing of the judge's data."""
    evaluation = result.evaluation
    return f"{result.status} in the stage '{result.stage}': {evaluation.reason or ''} {evaluation.message}".strip()


class KernelEnv:
    """One problem; an episode is a few attempts at it."""

    def __init__(self, pool: Pool, problem: str, attempts: int = 4, limit_s: float = 120.0) -> None:
        self._pool = pool
        self._problem = problem
        self._attempts = attempts
        self._limit_s = limit_s
        self._used = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[str, dict]:
        """The task, and nothing beside it. The judge draws its data anew for each attempt, whatever the seed is."""
        self._used = 0
        return TASK.format(problem=self._problem), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict]:
        """Observation, reward, terminated (it is right), truncated (no attempt is left, or nothing can be said of this
        one), and the result."""
        self._used += 1
        (result,) = self._pool.run([source_of(action)], problem=self._problem, limit_s=self._limit_s)
        worth = reward(result)
        truncated = worth is None or self._used >= self._attempts
        return feedback(result), worth or 0.0, result.status == "accepted", truncated, {"result": result}

    def close(self) -> None:
        """The pool is its maker's."""


class Rubric:
    """Scores completions; several at a time where the pool has several workers."""

    def __init__(self, pool: Pool, problem: str, limit_s: float = 120.0) -> None:
        self._pool = pool
        self._problem = problem
        self._limit_s = limit_s

    async def __call__(self, completion: str, **_about_it: object) -> float:
        """Where nothing can be said this is an error: a reward of 0 would teach that it was wrong."""
        sources = [source_of(completion)]
        async for result in self._pool.evaluate(sources, problem=self._problem, limit_s=self._limit_s):
            worth = reward(result)
            if worth is None:
                raise RuntimeError(result.evaluation.message)
            return worth
        raise RuntimeError("The pool gave no result.")
