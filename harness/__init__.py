"""kernelgate: judge and time single-file CUDA kernel replacements."""
