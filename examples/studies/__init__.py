"""Studies of workloads on the reference models. Not part of the wheel."""
