"""How long a call takes, by a clock outside of the process that is timed."""
