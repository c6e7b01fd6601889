"""What a worker takes from itself before it loads a submission, and what a submission must not call."""
