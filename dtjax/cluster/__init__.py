"""The machines: how many workers, how fast, what links them, and what a transfer takes."""
