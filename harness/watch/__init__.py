"""A submission is judged each time it is saved.

`session` is the loop: it waits for what is saved, for keys, and for verdicts. `saves` finds what was saved, `keys`
reads the terminal, `child` starts one eval.py a verdict, and `ahead` is what that process is until a file is saved.
`changes` says what got better or worse, and `screen` prints it.
"""
