"""The corpus: one small submission for each way to fool or to trouble a judge, and honest controls beside them.

Each family is a folder. A file's docstring says its strategy, then line by line:

    surface: what the strategy attacks
    needs:   where it can be judged; nothing means anywhere (see tests.hostile.corpus)
    expect:  the verdict that it must get: `accepted`, `rejected REASON|REASON…`, `error REASON`, or `too_slow`

`too_slow` is for submissions that compute rightly and only lie about their time: they must be accepted far
below the baseline's speed, since each of them sleeps. `python -m tests.hostile` judges them all.

    opens:   what lets it succeed: `given NAME` or `wall NAME`

Every hostile file could be refused for a reason that has nothing to do with what it attacks. So each is judged once
more with that open, and must be accepted. `given NAME`: a line `NAME = False` of the file is `NAME = True` in the copy
that is judged, and it has what it would steal, or leaves out the one deed that it is refused for. `wall NAME`: the
judge lacks that wall (tests/hostile/walls.py).
"""
