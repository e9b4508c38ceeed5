"""The report's figures and table as files for a paper: `python -m experiments.figures`."""
