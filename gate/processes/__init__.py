"""Work in other processes: with a time limit, or on several cores."""
