"""Attacks from outside: corrupted files, bad targets, kills, odd environments and hostile
requests.
"""
