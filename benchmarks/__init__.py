"""Measurements: `make bench`. Every figure in benchmarks/RESULTS.md comes from here."""
