"""The judge: `from harness import Pool, evaluate` judges from a Python program (docs/api.md).

A room is a file or a folder here, and imports only rooms that stand below it.

The plan (tests/test_architecture.py holds it; docs/architecture.md walks through it):

cli            the command line: parse, plan, run, report, exit code
options        what can be said on the command line
verbs/         what eval.py does beside judging, a verb a file
api/           judging from a Python program
serve/         judging for programs in any language: JSON lines on standard input and output
watch/         a submission judged each time it is saved
shares         a plan that several processes judge side by side
lanes/         processes that judge one submission after the other, for a caller that never loads torch
cluster/       a run on the nodes of a cluster, through Ray
again/         what was judged before, judged anew: sources of the database, bundles
run            a plan becomes results
plan           what a run will do, decided before it begins
report/        results for people and programs, a format a file in formats/, pages in site/; progress
gate/          what a merge has to hold: rules over evaluations, a function a rule
comparison/    whether two evaluations differ in speed
store/         evaluations that are kept in a database, and how they are ranked
tools/         Nsight Compute and compute-sanitizer
judge          one submission: right first, then timed
fitting/       whether a case fits into memory, and what is done where it does not
timing/        the clock outside: rounds/, the data of their buffers in data/, medians with intervals
judging/       what is asked of a worker to find out whether a submission is right
oracle/        what a right answer is: the reference in float64 and the error bound
diagnosis/     why a result is wrong: hypotheses, tried on a call that went wrong
process        how a process that judges is set up
isolation/     starting, asking, limiting, holding and ending workers
worker/        the process that imports a submission; walls/ is what it must not do
device/        a GPU, a CPU, and the emulator that stands in for a GPU
build/         load_inline, caught on its way to the compiler
peers/         other implementations to be compared with, a baseline a file
protocol/      what the judge and a worker say to each other
problem/       a problem file: its cases and its reference
inputs         distributions of inputs, a function each
layouts        how inputs and upstream gradients may lie in memory
submission     a submission's file, read as text
pairing        which problem of a folder a submission is for, by their names
against        what --against names
memory         what memory there is, and who took it
installed      whether this Python has what the judge needs
environment    the machine and the versions
version        which judge this is
storage/       the cache, and room on the disk
exits          exit codes
crash          errors that nobody foresaw
garbage        Python's garbage collection, off where it is in the way
events         what happens while a plan is run, as values
verdict        what came out, as values
timed          what was timed of a case, as one list
explanations   why a result is wrong, as values
notes          what is worth knowing beside it, as values
norms          which of torch's operators normalise
surroundings   settings of PyTorch that a call leaves as they were
reasons        why something was rejected or could not be judged, as values
records        what was seen of a kernel, as values
errors         one tree of errors
settings       what a run was asked for, and its seeds
paths          folders on this machine
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.api import Pool, Result, Source, Stage, evaluate

__all__ = ["Pool", "Result", "Source", "Stage", "evaluate"]


def __getattr__(name: str) -> object:
    """What programs import from here is loaded when they ask for it: rooms import nothing from above them."""
    if name in __all__:
        from harness import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
