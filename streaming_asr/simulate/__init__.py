"""Feeds audio to a method as it would arrive, times each step and writes what happened."""
