"""Defines no ModelNew.

surface: the form of a submission
expect: rejected load_failed
"""

import torch  # noqa: F401
