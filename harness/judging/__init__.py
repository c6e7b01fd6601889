"""Whether a submission computes what the reference computes."""
