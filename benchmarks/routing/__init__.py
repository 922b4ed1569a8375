"""Accuracy of the router, by labels that were written before the router."""
