"""Experiment tracking: a tracker for each run."""
