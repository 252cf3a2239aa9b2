"""What a newcomer starts with: files that work as they are written."""
