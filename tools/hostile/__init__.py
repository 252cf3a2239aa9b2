"""Attacks from outside: spoiled files, bad targets, kills, odd surroundings, hostile requests."""
