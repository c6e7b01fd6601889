"""What a right answer is: the reference in float64 and the error bound. It knows no worker."""

from harness.oracle.comparison import Comparison, compare, compare_all
from harness.oracle.error_bound import MOST_DRAWS, expect, expect_more
from harness.oracle.outputs import Expected, Form, exact_outputs, outputs_of, same_strides
from harness.oracle.widened import may_be_widened

__all__ = [
    "MOST_DRAWS",
    "Comparison",
    "Expected",
    "Form",
    "compare",
    "compare_all",
    "exact_outputs",
    "expect",
    "expect_more",
    "may_be_widened",
    "outputs_of",
    "same_strides",
]
