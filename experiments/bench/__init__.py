"""Benchmarks: what computing costs (docs/bench.md); __main__ has the commands."""
