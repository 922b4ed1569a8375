"""The runner `agent-sdk`: the program of the Claude Agent SDK asks for each model call of a
handoff, and the worker makes the call.
"""
