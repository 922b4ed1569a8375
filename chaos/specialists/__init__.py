"""Specialists of the jobs of a run that no built-in specialist can do."""
