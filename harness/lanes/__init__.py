"""Processes that judge one submission after the other, for a caller that never loads torch.

`lanes` hands submissions to lanes and lets times be taken one at a time; `lane` is one of them as its caller sees it,
`judging` is its program, and `wire` what the two say to each other. `standby` is a process that has loaded what a judge
needs and waits, also for `eval.py watch`; `loading` is what such a process does first.
"""
