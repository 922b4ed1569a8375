"""`python -m benchmarks.growth`: time and memory with a growing number of steps, queued jobs
and finished jobs.
"""
