"""What a client of vLLM observes beyond the kernel; one file for each feature."""
