"""Many independent runs of Spyre's scheduler at once, one a lane. Needs NumPy (`schedproof[fast]`).

Read in this order: `rows`, `projections`, `admission`, `turn`, `lanes`. The reference model says
what is right: a lane without a prefix cache, a bounded pool and aborts does exactly what it does.
"""
