"""Attacks from outside: corrupted files, misbehaving targets, kills, broken environments and
hostile requests.
"""
