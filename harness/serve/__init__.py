"""`eval.py serve`: a request a line on standard input, an answer a line on standard output, for any language.

`requests` reads what is asked for, `answers` makes an evaluation into a line of less than 4 kB, and `server` is the
loop between the two. docs/api.md has the fields.
"""
