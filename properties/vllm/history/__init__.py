"""What a client of vLLM observes beyond the kernel: loads, drafts, encoder inputs, steps in flight."""
