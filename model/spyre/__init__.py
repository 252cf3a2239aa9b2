"""Spyre (sendnn-inference): rectangular decode, right-aligned chunks, and a limit on batch x tkv.

`documented` is the scheduling page as functions; `sound`, `release_2_1_2` and `release_2_5_2`
replace some of its functions. `volumetric` and `peak` contain the volume checks, `blocks` the pool;
`scheduler` and `forward` carry out a step.
"""
