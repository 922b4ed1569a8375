"""How good answers are: a golden set through the real queue, answers held against each other,
and what the figures say.
"""
