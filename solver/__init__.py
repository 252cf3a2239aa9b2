"""Engines that decide questions exhaustively instead of sampling."""
