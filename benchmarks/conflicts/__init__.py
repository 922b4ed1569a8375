"""Accuracy of the contradiction finder, by labels that were written before the finder."""
