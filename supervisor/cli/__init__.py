"""The command `handoff`: run, submit, watch, look into and fix jobs; start and check the
processes that do them.
"""
