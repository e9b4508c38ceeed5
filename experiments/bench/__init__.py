"""Benchmarks: what computing costs. docs/bench.md says what is measured, __main__ has the commands."""
