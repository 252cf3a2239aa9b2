"""Run work in other processes, within a time limit or on several cores."""
