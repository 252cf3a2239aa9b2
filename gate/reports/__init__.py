"""What a gate tells: one reporter a file, each made from the events of `gate/events.py` alone."""
