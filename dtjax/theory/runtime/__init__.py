"""Seconds per update and speed-ups."""
