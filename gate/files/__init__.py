"""Read and write files, among them scenarios."""
