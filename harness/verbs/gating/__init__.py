"""What `eval.py gate` runs. The rules that it holds it to are those of harness.gate."""
