"""The corpus: one small submission for each way to fool or to trouble a judge, and honest controls beside them.

Each family is a folder. A file's docstring says its strategy, then line by line:

    surface: what the strategy attacks
    needs:   where it can be judged; nothing means anywhere (see tests.hostile.corpus)
    expect:  the verdict that it must get: `accepted`, `rejected REASON|REASON…`, `error REASON`, or `too_slow`

`too_slow` is for submissions that compute rightly and only lie about their time: they must be accepted below half
of the baseline's speed, since each of them sleeps. `python -m tests.hostile` judges them all.
"""
