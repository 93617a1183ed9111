"""What comes out of runs: times to a target, intervals, datasets, tables, plots."""
