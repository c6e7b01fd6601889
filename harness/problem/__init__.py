"""Problems: their values, reading them from a file, and KernelBench's convention."""

from harness.problem.reading import load_problem
from harness.problem.values import Case, Problem, asked_for, no_case_fits, select_cases

__all__ = ["Case", "Problem", "asked_for", "load_problem", "no_case_fits", "select_cases"]
