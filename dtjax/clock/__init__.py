"""The clock: from machines and a policy to a trace of updates, or to what is asked of it."""
