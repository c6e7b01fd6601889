"""What lies in the buffers of timed rounds, what changes there, and what must come out."""
