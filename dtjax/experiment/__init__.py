"""Experiments: settings, cached parts, provenance, results."""
