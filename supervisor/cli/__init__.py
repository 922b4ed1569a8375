"""The command `handoff`: run, submit, watch, look into and mend jobs; start and check the
processes that do them.
"""
