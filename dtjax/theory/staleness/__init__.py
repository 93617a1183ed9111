"""Staleness: means and laws."""
