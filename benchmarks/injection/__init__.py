"""Attacks of public agent-injection suites against the real product, with a model that obeys."""
