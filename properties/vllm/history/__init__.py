"""The features of vLLM that a client can observe and the kernel does not have, one file per
feature."""
