"""Reports of a gate, one module per format, made from the events in `gate/judging/verdict.py`."""
