"""Its ModelNew is a function that returns a string.

surface: the form of a submission
expect: rejected load_failed
"""

def ModelNew(normalized_shape, eps=1e-5):
    return "model"
