"""What a newcomer starts with: the files of `schedproof init`."""
