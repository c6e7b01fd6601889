"""The judge. A room is a file or a folder here, and imports only rooms that stand below it.

The plan (tests/test_architecture.py holds it):

cli            the command line
report/        results for people and programs
tools/         Nsight Compute and compute-sanitizer
evaluate       one submission: right first, then timed
timing/        the clock outside, the data of its rounds, medians with intervals
judging/       what is asked of a worker to find out whether a submission is right
oracle/        what a right answer is: the reference in float64 and the error bound
isolation/     starting workers, and what they can reach
worker/        the process that imports a submission; it sees device/, build/, peers/ and protocol/ alone
device/        a GPU, a CPU, and the emulator that stands in for a GPU
build/         load_inline, caught on its way to the compiler
peers/         other implementations to be compared with
protocol/      what the judge and a worker say to each other
problem/       a problem file: its cases and its reference
inputs, submission, against   what else users write or name
verdict        results as values, made of reasons, notes and records
settings, paths, errors, environment
"""
