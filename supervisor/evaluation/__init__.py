"""Evaluation of answers: golden sets that run through the real queue, comparisons of two
answers, and their figures.
"""
