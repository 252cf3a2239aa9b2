"""The observations of vLLM's clients beyond the kernel, with one file per feature."""
