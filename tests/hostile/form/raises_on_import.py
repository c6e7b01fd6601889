"""Raises while it is loaded.

surface: the form of a submission
expect: rejected load_failed
"""

raise RuntimeError("needs a GPU with wings")
