"""Trials of isolation: whether the judge can share memory with a process that is started like a worker."""
