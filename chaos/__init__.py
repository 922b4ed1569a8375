"""`handoff chaos`: the whole system under a killer, and the books that show what it kept of
its promises. No production code.
"""
