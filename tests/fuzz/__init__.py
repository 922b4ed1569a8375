"""Fuzzing of the parsers that read data of other programs: `python -m tests.fuzz`."""
