"""The whole system on one machine: a private Redis and supervised processes, none of which
outlives whoever started them.
"""
