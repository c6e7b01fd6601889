"""A reward for a result: an example, not a policy."""

from harness import Result

# What is worth how much is for who trains to say. Here a kernel that is right is worth more than any that is not, one
# that comes further is worth a little, and speed counts by its sure end, up to where a clock would be suspected.
OF_STAGE = {"static": 0.0, "compile": 0.0, "verdict": 0.1, "timing": 0.2}
FASTEST = 20.0


def reward(result: Result) -> float | None:
    """None where nothing is said about the submission: whoever learns from it must leave it out."""
    evaluation = result.evaluation
    if result.status == "error":
        return None
    if result.status == "rejected":
        return OF_STAGE[result.stage]
    low = evaluation.geomean_interval[0] if evaluation.geomean_interval else 0.0
    return 1.0 + min(low, FASTEST)
