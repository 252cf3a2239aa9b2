"""Spyre (sendnn-inference): rectangular decode, right-aligned chunks, and a limit on batch x tkv.

`documented` is the scheduling page as functions, some of which are replaced in `sound`,
`release_2_1_2` and `release_2_5_2`. `volumetric` and `peak` contain the volume checks, and `blocks`
the pool. `scheduler` and `forward` carry out a step.
"""
