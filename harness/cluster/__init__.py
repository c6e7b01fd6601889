"""Judging on the nodes of a cluster, through Ray (docs/cluster.md). Nothing here is imported without `--cluster`.

`driver` sends submissions to seats and gathers what they say, in the process of eval.py, which judges nothing. `crew`
has the seats, and new ones for those that are lost; `places` says where there is room for some, and which go together.
`seat` is what an actor of Ray's holds, `facts` the program that says what it judges with, and `building` the one that
builds for it elsewhere. `wire` is what they say to each other, and `connection` the way into a cluster.
"""

from harness.cluster.driver import run

__all__ = ["run"]
