"""The judge. A room is a file or a folder here, and imports only rooms that stand below it.

The plan (tests/test_architecture.py holds it; docs/architecture.md walks through it):

cli            the command line: parse, plan, run, report, exit code
options        what can be said on the command line; verbs/ what eval.py does beside judging, a verb a file
run            a plan becomes results; plan what a run will do; events what happens meanwhile
report/        results for people and programs: formats/ has a format a file, progress listens to events
exits, crash   exit codes; errors that nobody foresaw
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
problem, inputs, submission, against   what users write, read from files and from the command line
events, verdict, reasons, notes, records   what happens, what came out and why, as values
settings, paths, errors, environment, storage/
"""
