"""Attacks from outside: corrupted files, bad targets, kills, odd surroundings, hostile requests."""
