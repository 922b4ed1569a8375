"""The whole system on one machine: a private Redis and supervised processes. They end with the
process that started them.
"""
