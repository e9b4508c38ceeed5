"""Benchmarks: what computing costs. README.md says what is measured, __main__ has the commands."""
