"""Spyre (sendnn-inference): rectangular decode, right-aligned chunks, a ceiling on batch x tkv.

Read in this order: `padding`, `tkv`, `volumetric`, `admission`, `scheduler`. What a published
revision does differently is one value of `revision.Revision`.
"""
