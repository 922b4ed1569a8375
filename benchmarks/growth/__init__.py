"""`python -m benchmarks.growth`: what becomes of time and memory when there is a hundred times
as much of everything.
"""
