"""`handoff chaos`: runs the whole system under a killer and checks its promises. No production
code.
"""
