"""What a client of vLLM observes beyond the kernel, a file for each feature."""
