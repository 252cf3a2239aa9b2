"""What clients of vLLM observe beyond the kernel, with one file per feature."""
