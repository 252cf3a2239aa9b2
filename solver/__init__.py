"""Engines that decide instead of sampling."""
