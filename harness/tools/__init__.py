"""Nsight Compute and compute-sanitizer over a submission that runs alone."""
