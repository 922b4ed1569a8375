"""Measurements: `make bench`. Every figure in docs/performance.md comes from here."""
