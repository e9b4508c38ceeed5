"""Experiment tracking: a tracker for each run, a workspace for an experiment."""
