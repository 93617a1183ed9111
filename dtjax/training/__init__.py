"""Training along a trace: tasks, models, data, updates, many runs, learning rates."""
