"""Is not Python.

surface: the form of a submission
expect: rejected load_failed
"""

def forward(:
