"""What can happen to a job and what is to be done next: pure functions over values, and
nothing else.
"""
