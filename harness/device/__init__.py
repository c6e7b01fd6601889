"""Where kernels run: a real GPU, the CPU itself, or CUDA emulated on the CPU."""
