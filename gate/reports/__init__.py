"""Reports of a gate, one format per file, made from the events in `gate/judging/verdict.py`."""
